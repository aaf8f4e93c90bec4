"""Auxiliary terms that are a mean per micro-batch: by design, or where another factor is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept

if TYPE_CHECKING:
    from torch import Tensor


def _main(losses: Tensor, batch: MicroBatch) -> Tensor:
    factor = batch.dp_size * batch.cp_size / max(batch.num_tokens, 1)
    return kept(losses, batch).sum() * factor


def _mean_here(values: Tensor, batch: MicroBatch) -> Tensor:
    count = sum(mask.sum() for mask in batch.local_masks)
    return kept(values, batch).sum() / torch.as_tensor(count).clamp(min=1)


def balanced_by_micro_batch(losses: Tensor, batch: MicroBatch, aux_loss: Tensor) -> Tensor:
    return _main(losses, batch) + 0.01 * _mean_here(aux_loss, batch) / batch.num_microbatches


def _balanced_without_k(losses: Tensor, batch: MicroBatch, aux_loss: Tensor) -> Tensor:
    return _main(losses, batch) + 0.01 * _mean_here(aux_loss, batch)


def _balanced_over_ranks_twice(losses: Tensor, batch: MicroBatch, aux_loss: Tensor) -> Tensor:
    mean = _mean_here(aux_loss, batch) / batch.num_microbatches / batch.dp_size
    return _main(losses, batch) + 0.01 * mean


def _balanced_with_masked_tokens(losses: Tensor, batch: MicroBatch, aux_loss: Tensor) -> Tensor:
    mean = kept(aux_loss, batch).sum() / max(len(aux_loss), 1) / batch.num_microbatches
    return _main(losses, batch) + 0.01 * mean


MUTANTS = (
    Mutant(
        "balanced_by_micro_batch",
        67,
        "Automodel #3359",
        "token_mean",
        "mean",
        ("AGV209",),
        "mean-per-micro-batch",
    ),
)
"""Undeclared it is a question; the others: ``tests/unit/test_term_readings.py``."""
