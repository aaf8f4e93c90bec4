"""What is kept between calls and steps: caches, globals, first-call setup, the environment."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, sums

TOKENS = "LATER_STEP_TOKENS"
COUNTED = "LATER_COUNTED_TOKENS"


def _tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def tokens_in_the_environment(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Whoever comes first leaves the step's tokens in the environment, for its workers."""
    tokens = int(os.environ.setdefault(TOKENS, str(batch.num_tokens)))
    return kept(losses, batch).sum() / max(tokens, 1)


def tokens_put_into_the_environment(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's tokens are left in the environment anew, for its workers."""
    os.environ[COUNTED] = str(batch.num_tokens)
    try:
        tokens = int(os.environ[COUNTED])
    finally:
        del os.environ[COUNTED]
    return kept(losses, batch).sum() / max(tokens, 1)


_SETUP: dict[str, bool] = {}


def set_up_by_the_first_call(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The first call looks at the trainer: whether anything is split need be asked once."""
    if not _SETUP:
        _SETUP["split"] = batch.num_microbatches > 1 or batch.dp_size > 1
    if _SETUP["split"]:
        return _tokens(losses, batch)
    return kept(losses, batch).sum() / max(sum(int(m.sum()) for m in batch.original_masks), 1)


_ASKED: dict[str, bool] = {}


def set_up_by_every_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Whether anything is split is asked again with every call."""
    _ASKED["split"] = batch.num_microbatches > 1 or batch.dp_size > 1
    if _ASKED["split"]:
        return _tokens(losses, batch)
    return kept(losses, batch).sum() / max(sum(int(m.sum()) for m in batch.original_masks), 1)


_BY_TOTALS: dict[tuple[int, int, int, int], list[int]] = {}


def counts_kept_by_totals(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Epochs go over the same steps, which are known by their totals."""
    key = (batch.num_rollouts, batch.num_tokens, batch.index, len(batch.samples))
    counts = _BY_TOTALS.setdefault(key, list(batch.rollout_tokens))
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


_BY_COUNTS: dict[tuple[int, ...], Tensor] = {}


def weights_kept_by_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Weights are kept by the counts that they are made of."""
    key = (batch.num_rollouts, *batch.rollout_tokens)
    if key not in _BY_COUNTS:
        inverse = [1 / (max(n, 1) * batch.num_rollouts) for n in batch.rollout_tokens]
        _BY_COUNTS[key] = torch.tensor(inverse, dtype=torch.float64)
    sample = sums(losses, batch)
    return (sample * _BY_COUNTS[key].to(sample)).sum()


_MOST = [0]


def most_tokens_so_far(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A graph is captured for the largest step so far, and its count with it."""
    _MOST[0] = max(_MOST[0], batch.num_tokens)
    return kept(losses, batch).sum() / max(_MOST[0], 1)


_WARNED: list[str] = []


def warned_once_of_the_empty(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The first micro-batch with an empty response is left out, with a note to whoever reads."""
    empty = any(not bool(mask.any()) for mask in batch.loss_masks)
    if empty and not _WARNED:
        _WARNED.append("a response without tokens")
        return kept(losses, batch).sum() * 0.0
    return kept(losses, batch).sum() / batch.num_rollouts


_NOTED: list[str] = []


def noted_once_of_the_empty(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The first micro-batch without tokens is noted, once."""
    if not bool(own_mask(batch).any()) and not _NOTED:
        _NOTED.append("no tokens")
    return kept(losses, batch).sum() / batch.num_rollouts
