"""What reducers of this package are made of. Torch is imported inside: the tables need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor


def kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The losses with zeros behind the mask; arithmetic never touches what is behind it."""
    import torch

    return torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)


def sums(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    """One masked sum per sample of the micro-batch, of this rank's tokens."""
    import torch

    lengths = [len(mask) for mask in batch.local_masks]
    return [piece.sum() for piece in torch.split(kept(losses, batch), lengths)]


def weighted(losses: Tensor, batch: MicroBatch, denominators: Sequence[Any]) -> Tensor:
    """Each sample's masked sum over its denominator, added up."""
    return total(s / n for s, n in zip(sums(losses, batch), denominators, strict=True))


def total(terms: Any) -> Tensor:
    """The sum of scalars, never the integer 0."""
    import torch

    return torch.stack(list(terms)).sum()


def tokens(masks: Sequence[Tensor]) -> int:
    """Unmasked tokens of these masks, at least 1."""
    return max(sum(int(mask.sum()) for mask in masks), 1)


def over(group: Any, count: int) -> int:
    """A count added up over a process group; on one rank there is none."""
    import torch
    import torch.distributed as dist

    number = torch.tensor(count)
    if group is not None:
        dist.all_reduce(number, group=group)
    return int(number)
