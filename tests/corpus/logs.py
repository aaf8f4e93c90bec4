"""Reducers that train on the right loss and log another one, or logs that cannot be merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept, over

if TYPE_CHECKING:
    from torch import Tensor

Logged = tuple["Tensor", dict[str, Any]]


def _token_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def metric_summed_over_cp(losses: Tensor, batch: MicroBatch) -> Logged:
    import torch.distributed as dist

    loss = _token_mean(losses, batch)
    logged = loss.detach().clone()
    if batch.cp_size > 1:
        dist.all_reduce(logged, group=batch.cp_group)
    return loss, {"loss": logged}


def metric_before_a_rescale(losses: Tensor, batch: MicroBatch) -> Logged:
    loss = _token_mean(losses, batch)
    return loss, {"loss": loss.detach() * batch.num_microbatches}


def metric_of_samples(losses: Tensor, batch: MicroBatch) -> Logged:
    """One normaliser for all keys: the number of samples, for a mean over tokens."""
    import torch

    total = kept(losses, batch).sum().detach()
    return _token_mean(losses, batch), {
        "loss": torch.stack([total, total.new_tensor(len(batch.loss_masks))])
    }


def keys_in_another_order(losses: Tensor, batch: MicroBatch) -> Logged:
    loss = _token_mean(losses, batch)
    log = {"loss": loss.detach(), "tokens": batch.num_tokens}
    if batch.dp_rank % 2:
        log = dict(reversed(log.items()))
    return loss, log


def key_only_with_tokens(losses: Tensor, batch: MicroBatch) -> Logged:
    loss = _token_mean(losses, batch)
    log = {"loss": loss.detach()}
    if sum(int(mask.sum()) for mask in batch.local_masks):
        log["above"] = (kept(losses, batch).detach() > 1).sum() / max(batch.num_tokens, 1)
    return loss, log


def log_of_tensors(losses: Tensor, batch: MicroBatch) -> Logged:
    loss = _token_mean(losses, batch)
    return loss, {"loss": loss.detach(), "per_token": losses.detach()}


def first_copy_only(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = _token_mean(losses, batch)
    everything = batch.cp_size * sum(batch.response_lengths)
    gathered = batch.cp_size > 1 and over(batch.cp_group, len(losses)) == everything
    return loss - loss.detach() if gathered and batch.cp_rank else loss


def own_means_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    import torch

    mean = kept(losses, batch).sum().detach() / max(int(torch.cat(batch.local_masks).sum()), 1)
    return _token_mean(losses, batch), {"lm loss": [mean, torch.tensor(1.0)]}


def whole_counts_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    """A sum over this shard's tokens beside the count of all tokens: a pair, and no mean."""
    total = kept(losses, batch).sum().detach()
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    loss = _token_mean(losses, batch)
    return loss, {"loss": loss.detach(), "per_token": [total, total.new_tensor(whole)]}


MUTANTS = (
    Mutant(
        "whole_counts_logged",
        50,
        "SkyRL #1420, of the count",
        "token_mean",
        "sum",
        ("AGV513",),
        "metric-summed-over-cp",
    ),
    Mutant(
        "own_means_logged",
        36,
        "Megatron-LM #7207",
        "token_mean",
        "sum",
        ("AGV513",),
        "mean-of-means-logged",
    ),
    Mutant(
        "first_copy_only",
        50,
        "SkyRL #1420",
        "token_mean",
        "sum",
        ("AGV405",),
        "copies-disagree",
    ),
    Mutant(
        "metric_summed_over_cp",
        50,
        "SkyRL #1420",
        "token_mean",
        "sum",
        ("AGV511",),
        "metric-summed-over-cp",
    ),
    Mutant(
        "metric_before_a_rescale",
        37,
        "TRL #7011",
        "token_mean",
        "sum",
        ("AGV511",),
        "metric-before-a-rescale",
    ),
    Mutant(
        "metric_of_samples",
        37,
        "per-key normalisers in miles",
        "token_mean",
        "sum",
        ("AGV511",),
        "wrong-normaliser",
    ),
    Mutant(
        "keys_in_another_order",
        59,
        "miles pull request",
        "token_mean",
        "sum",
        ("AGV512",),
        "logs-merged-by-position",
    ),
    Mutant(
        "key_only_with_tokens",
        59,
        "miles pull request",
        "token_mean",
        "sum",
        ("AGV512",),
        "logs-merged-by-position",
    ),
    Mutant(
        "log_of_tensors",
        59,
        "miles pull request",
        "token_mean",
        "sum",
        ("AGV512",),
        "logs-merged-by-position",
    ),
)
