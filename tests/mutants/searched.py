"""Reducers whose faults hide behind one another, or behind a rounding."""

from __future__ import annotations

import torch

from aggverify.conventions import MicroBatch


def _kept(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)


def sum_of_means_in_float32(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """The number of rollouts is forgotten: one alone is right, and rounded."""
    pieces = torch.split(_kept(losses, batch).float(), [len(mask) for mask in batch.local_masks])
    counts = [max(n, 1) for n in batch.rollout_tokens]
    return torch.stack([p.sum() / n for p, n in zip(pieces, counts, strict=True)]).sum()


def raises(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    raise KeyError("loss_mask")
