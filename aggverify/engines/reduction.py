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


def reduce(engine: Engine, shares: Sequence[Share]) -> list[Tensor]:
    """The update's gradient of every case, the same on all ranks.

    Like DDP, which reduces buckets rather than parameters, all cases travel in one collective.
    That changes no bit: a token belongs to one rank, so every element of the sum is one number
    plus zeros, exact in whatever order it is added.
    """
    import torch
    import torch.distributed as dist

    for share in shares:
        engine.before_reduction(share.gradient, share.sizes)
    totals = torch.tensor([share.num_tokens for share in shares], dtype=torch.int32)
    if engine.takes_counts:
        dist.all_reduce(totals)
    flat = torch.cat([share.gradient for share in shares])
    dist.all_reduce(flat)
    gradients = list(flat.split([len(share.gradient) for share in shares]))
    counts = totals.tolist() if engine.takes_counts else [0] * len(shares)
    for share, gradient, count in zip(shares, gradients, counts, strict=True):
        engine.after_reduction(gradient, count, share.sizes)
    return gradients
