"""The engine's collectives: gradients of one or many cases summed over all ranks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggverify.engines.base import Engine, Sizes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's part of one case: its accumulated gradient, 1-D, and the tokens it counted."""

    gradient: Tensor
    num_tokens: int
    sizes: Sizes


class Reduction:
    """Gradients of one or many cases on their way to being the update's, the same on all ranks.

    Like DDP, which reduces buckets rather than parameters, all cases travel in one collective.
    That changes no bit: a token belongs to one rank, so every element of the sum is one number
    plus zeros, exact in whatever order it is added.
    """

    def __init__(self, engine: Engine, shares: Sequence[Share], *, waits: bool = True) -> None:
        """Begin; unless ``waits``, the collectives go on while the rank does other things."""
        import torch
        import torch.distributed as dist

        self._engine, self._shares = engine, shares
        for share in shares:
            engine.before_reduction(share.gradient, share.sizes)
        self._totals = torch.tensor([share.num_tokens for share in shares], dtype=torch.int32)
        self._flat = torch.cat([share.gradient for share in shares])
        travelling = [self._totals, self._flat] if engine.takes_counts else [self._flat]
        self._works = [dist.all_reduce(tensor, async_op=not waits) for tensor in travelling]

    @property
    def arrived(self) -> bool:
        """Whether :meth:`gradients` would not wait."""
        return all(work is None or work.is_completed() for work in self._works)

    def gradients(self) -> list[Tensor]:
        """The update's gradient of every case."""
        for work in self._works:
            if work is not None:
                work.wait()
        engine = self._engine
        gradients = list(self._flat.split([len(share.gradient) for share in self._shares]))
        counts = self._totals.tolist() if engine.takes_counts else [0] * len(self._shares)
        for share, gradient, count in zip(self._shares, gradients, counts, strict=True):
            engine.after_reduction(gradient, count, share.sizes)
        return gradients
