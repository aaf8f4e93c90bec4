"""Per-token losses gathered over context parallelism, as a trainer gathers them; runs in a rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import Site
from aggverify.conventions.base import placed
from aggverify.steps.layouts import owned_pieces, positions


def gathered(site: Site, members: Sequence[int], local: Tensor, times: int) -> Tensor:
    """All CP ranks' losses in sample order, 1-D.

    The backward hands each rank its own slice, multiplied by ``times`` as the trainer's own does.
    """
    step, layout = site.case.step, site.case.layout
    *starts, total = accumulate((step.samples[i].response_length for i in members), initial=0)
    owned = [
        positions(starts, owned_pieces(step, members, layout, c)) for c in range(layout.cp_size)
    ]
    places = [placed(torch.from_numpy(index), site.device) for index in owned]
    out: Tensor = _Gather.apply(local, places, total, site, times)  # type: ignore[no-untyped-call]
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, local: Tensor, places: list[Tensor], total: int, site: Site, times: int
    ) -> Tensor:
        ctx.mine, ctx.times = places[site.cp_rank], times
        padded = local.new_zeros(max(map(len, places)))
        padded[: len(local)] = local
        received = [torch.empty_like(padded) for _ in places]
        dist.all_gather(received, padded, group=site.cp_group)
        out = local.new_empty(total)
        for index, part in zip(places, received, strict=True):
            out[index] = part[: len(index)]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        own = gradients[0][ctx.mine]
        return (own if ctx.times == 1 else own * ctx.times), None, None, None, None
