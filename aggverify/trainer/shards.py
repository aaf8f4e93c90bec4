"""What a rank holds of a step: which tokens, their losses as tensors, their gradient afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aggverify.conventions import Site
from aggverify.steps.layouts import owned_pieces, positions

if TYPE_CHECKING:
    from torch import Tensor


class Shard:
    """One rank's part of one case: its slice of the step's losses per micro-batch.

    What a token's loss is, is the parameter: an entry per response token of the step. It is one
    leaf for all micro-batches, as a model's is: candidates have been known to zero its gradient in
    between.
    """

    def __init__(self, site: Site) -> None:
        import torch

        self._site = site
        values = np.array(site.case.losses, dtype=np.float64)
        self._parameter = torch.from_numpy(values).requires_grad_()

    def losses(self, members: tuple[int, ...]) -> Tensor:
        """The per-token losses that the reducer sees of a micro-batch on this rank, 1-D."""
        import torch

        case, cp_rank = self._site.case, self._site.cp_rank
        layout = case.layout
        starts = [case.step.offsets[i] for i in members]
        owned = positions(starts, owned_pieces(case.step, members, layout, cp_rank))
        # A copy, whatever the slice: what a candidate does to its losses must not reach the leaf.
        local = self._parameter.index_select(0, torch.from_numpy(owned))
        if layout.cp_kind == "gathered" and layout.cp_size > 1:
            local = _gather(self._site, members, local)
        return local.to(getattr(torch, case.dtype))

    @property
    def gradient(self) -> Tensor | None:
        """What backward left in the leaf, 1-D; None when no returned loss depended on it."""
        return self._parameter.grad


def _gather(site: Site, members: tuple[int, ...], local: Tensor) -> Tensor:
    """All CP ranks' losses in sample order; the backward hands each rank its own slice, once."""
    import torch
    import torch.distributed as dist

    step, layout = site.case.step, site.case.layout
    lengths = [step.samples[i].response_length for i in members]
    starts = [0, *np.cumsum(lengths).tolist()]
    owned = [
        torch.from_numpy(positions(starts[:-1], owned_pieces(step, members, layout, c)))
        for c in range(layout.cp_size)
    ]
    mine = owned[site.cp_rank]

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, piece: Tensor) -> Tensor:
            longest = max(len(index) for index in owned)
            padded = torch.zeros(longest, dtype=piece.dtype)
            padded[: len(piece)] = piece
            received = [torch.empty_like(padded) for _ in owned]
            dist.all_gather(received, padded, group=site.cp_group)
            out = torch.empty(starts[-1], dtype=piece.dtype)
            for index, part in zip(owned, received, strict=True):
                out[index] = part[: len(index)]
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0][mine]

    out: Tensor = Gather.apply(local)  # type: ignore[no-untyped-call]
    return out
