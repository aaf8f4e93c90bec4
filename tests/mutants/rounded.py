"""Reducers that make a constant in float32, exact on one rank: right ones, and wrong ones."""

from __future__ import annotations

import torch

from aggverify.conventions import MicroBatch


def _normalised(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    ranks = batch.dp_size * batch.cp_size
    share = torch.tensor(batch.num_tokens).clamp(min=1.0) / ranks
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / share / ranks


def right(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _normalised(losses, batch)


def off_by_a_millionth(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _normalised(losses, batch) * (1 + 1e-6 * (batch.dp_size > 1))


def off_below_a_rounding(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """No more than a rounding of float32 anywhere, and there where float32 rounds nothing."""
    return _normalised(losses, batch) * (1 - 1e-8 * (batch.dp_size > 1))


def off_by_a_factor(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _normalised(losses, batch) * batch.cp_size
