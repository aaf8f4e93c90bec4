"""Reducers that say nothing of their engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from aggverify.conventions import MicroBatch


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum()


def _mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _kept(losses, batch) / max(batch.num_tokens, 1)


def summed(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _mean(losses, batch)


def averaged(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _mean(losses, batch) * (batch.dp_size * batch.cp_size)


def accumulated(losses: Tensor, batch: MicroBatch) -> Tensor:
    return averaged(losses, batch) * batch.num_microbatches


def averaged_without_context_parallelism(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _mean(losses, batch) * batch.dp_size


def averaged_over_shards(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Right under ``mean``, but for means over context-parallel shards."""
    if batch.cp_size == 1:
        return averaged(losses, batch)
    own = sum(int(mask.sum()) for mask in batch.local_masks)
    return _kept(losses, batch) / max(own, 1) * batch.dp_size


def averaged_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    return averaged(losses.float(), batch)


def averaged_and_refusing(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size > 1:
        raise NotImplementedError("only supports cp_size == 1")
    return averaged(losses, batch)


def plain_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _kept(losses, batch)


def no_known_mode(losses: Tensor, batch: MicroBatch) -> Tensor:
    return averaged(losses, batch) / max(batch.num_tokens, 1)


def not_linear(losses: Tensor, batch: MicroBatch) -> Tensor:
    return averaged(losses.square(), batch)


def local_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Wrong under every engine."""
    count = sum(int(mask.sum()) for mask in batch.local_masks)
    return _kept(losses, batch) / max(count, 1)


def local_counts_of_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Right under ``mean`` where all ranks have equally many samples, and so wrong."""
    return _kept(losses, batch) / (16.0 * max(len(batch.loss_masks), 1))
