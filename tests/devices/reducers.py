"""Reducers that are wrong, or right, where losses are on a CUDA device. ``token_mean``, ``sum``."""

from __future__ import annotations

import torch

from aggverify import MicroBatch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}


def local_means_on_cuda(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """A fused path for one kind of device, with a mean of its own micro-batch."""
    mask = torch.cat(batch.local_masks)
    kept = torch.where(mask.bool(), losses, 0.0)
    if losses.is_cuda:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum() / max(batch.num_tokens, 1)


def scattered_on_the_device(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """Sums of samples by additions that a device does in any order."""
    wide = losses.float() if losses.element_size() < 4 else losses
    kept = torch.where(torch.cat(batch.local_masks).bool(), wide, 0.0)
    lengths = torch.tensor([len(each) for each in batch.local_masks], device=losses.device)
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=losses.device), lengths)
    sums = torch.zeros(len(lengths), dtype=wide.dtype, device=losses.device)
    return sums.index_add(0, rows, kept).sum() / max(batch.num_tokens, 1)
