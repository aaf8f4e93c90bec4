"""What most of the reducers begin with: unmasked losses, per sample, in at least float32."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch


def own_mask(batch: MicroBatch) -> Tensor:
    return torch.cat(batch.local_masks).bool()


def kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Losses with zeros behind the mask; 16-bit ones are added up in float32."""
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(own_mask(batch), wide, 0.0)


def lengths(batch: MicroBatch) -> list[int]:
    """Local tokens of each sample."""
    return [len(mask) for mask in batch.local_masks]


def rows(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    """The unmasked local losses of each sample, zeros between them."""
    return list(kept(losses, batch).split(lengths(batch)))


def sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One number per sample."""
    return torch.stack([row.sum() for row in rows(losses, batch)])


def over(values: Tensor, counts: list[int]) -> Tensor:
    """Each value divided by its count, of which none is 0."""
    return values / torch.tensor([max(n, 1) for n in counts], dtype=torch.float64).to(values)
