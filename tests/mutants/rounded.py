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


def _one_and_back(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """A weight has the roundings of a 1 that is added and taken away again, in float64."""
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    weight = (1 / torch.tensor(batch.num_tokens, dtype=torch.float64) + 1) - 1
    return (kept.double() * weight).sum()


def one_and_back(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _one_and_back(losses, batch)


def one_and_back_off(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _one_and_back(losses, batch) * (1 + 1e-13 * (batch.num_microbatches > 1))


def one_and_back_off_in_float32(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _one_and_back(losses, batch) * (1 + 1e-6 * (losses.dtype == torch.float32))


def value_by_way_of_the_sum(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """The value has the roundings of a larger one that is added and taken away again."""
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum()
    mean, larger = kept / batch.num_tokens, 4 * kept
    return mean + (larger + (mean - larger) - mean).detach()
