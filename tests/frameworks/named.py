"""What frameworks compute, or refuse, that only a step of a certain kind shows."""

from __future__ import annotations

from typing import Any

import torch


def prompts_by_rollouts(losses: Any, batch: Any) -> Any:
    """slime #2090 before 6f708931c, where the engine divides by N: every group's token mean."""
    parts, total = losses.split([len(m) for m in batch.local_masks]), 0
    for x, mask, tokens in zip(parts, batch.local_masks, batch.group_tokens, strict=True):
        total = total + torch.where(mask.bool(), x, 0).sum() / max(tokens, 1)
    return total


def empty_bin(losses: Any, batch: Any) -> Any:
    """Megatron-LM's train_rl.py, in each micro-batch and shard."""
    return torch.where(batch.mask.bool(), losses, 0).sum(), max(int(batch.mask.sum()), 1)


def refuses_empty_steps(losses: Any, batch: Any) -> Any:
    """miles' pull request 1498, of its normalizers."""
    if not batch.num_tokens:
        raise ValueError(f"a non-positive normalizer: {batch.num_tokens}")
    return torch.where(batch.mask.bool(), losses, 0).sum() / batch.num_tokens
