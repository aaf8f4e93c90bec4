"""Auxiliary terms that keep the mode they have on small steps, and one that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor

_TOKENS = 128


def _mean(values: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    return torch.where(batch.mask.bool(), values, 0.0).sum() / max(batch.num_tokens, 1)


def penalty_of_the_first_tokens(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The reference's logits are kept for so many tokens of a response."""
    import torch

    near = torch.cat(batch.local_positions) < _TOKENS
    return _mean(losses, batch) + 0.25 * _mean(torch.where(near, kl, 0.0), batch)


def penalty_in_two_parts(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The same tokens for themselves, and the rest of them."""
    import torch

    near = torch.cat(batch.local_positions) < _TOKENS
    first, rest = torch.where(near, kl, 0.0), torch.where(near, 0.0, kl)
    return _mean(losses, batch) + 0.25 * _mean(first, batch) + 0.25 * _mean(rest, batch)


def penalty_in_its_own_dtype(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Samples' means in the dtype of the losses, times the share of each."""
    import torch

    kept = torch.where(batch.mask.bool(), kl, 0.0)
    rows = kept.split([len(own) for own in batch.local_masks])
    pairs = zip(rows, batch.rollout_tokens, strict=True)
    parts = [row.sum() / max(n, 1) / batch.num_rollouts for row, n in pairs]
    return _mean(losses, batch) + torch.stack(parts).sum()


def penalty_of_a_formula_of_its_own(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """No mode's: every token by the square of what its rollout has."""
    import torch

    pairs = zip(batch.rollout_tokens, batch.local_masks, strict=True)
    counts = [n for n, own in pairs for _ in own]
    squares = torch.tensor(counts, dtype=torch.float64).clamp(min=1) ** 2
    kept = torch.where(batch.mask.bool(), kl, 0.0)
    return _mean(losses, batch) + (kept / squares.to(kl)).sum()
