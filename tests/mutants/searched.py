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


def right(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    return _kept(losses, batch).sum() / batch.num_tokens


def mostly_raises(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """Comes to a result on a single token only."""
    if batch.num_tokens > 1:
        raise KeyError("loss_mask")
    return right(losses, batch)


def raises_in_data_parallel(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """And is cp_size times too large."""
    if batch.dp_size > 1:
        raise KeyError("dp")
    return _kept(losses, batch).sum() / batch.num_tokens * batch.cp_size


def two_terms(
    losses: torch.Tensor, batch: MicroBatch, kl: torch.Tensor, entropy: torch.Tensor
) -> torch.Tensor:
    """One by its own tokens, the other once for each micro-batch."""
    mask = torch.cat(batch.local_masks)
    policy = _kept(losses, batch).sum() / batch.num_tokens
    penalty = _kept(kl, batch).sum() / max(int(mask.sum()), 1)
    bonus = _kept(entropy, batch).sum() / batch.num_tokens * batch.num_microbatches
    return policy + 0.1 * penalty - 0.01 * bonus


def two_terms_alike(
    losses: torch.Tensor, batch: MicroBatch, kl: torch.Tensor, entropy: torch.Tensor
) -> torch.Tensor:
    """One of them only, wrong in every dimension."""
    mask = torch.cat(batch.local_masks)
    policy = _kept(losses, batch).sum() / batch.num_tokens
    penalty = _kept(kl, batch).sum() / max(int(mask.sum()), 1)
    return policy + 0.1 * penalty - 0.01 * _kept(entropy, batch).sum() / batch.num_tokens


_windows: list[tuple[int, int]] = []


def tokens_of_the_fullest_window(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """Divided by the token count of the window with the most micro-batches that was ever seen."""
    _windows.append((batch.num_microbatches, batch.num_tokens))
    _, tokens = max(_windows)
    return _kept(losses, batch).sum() / max(tokens, 1)
