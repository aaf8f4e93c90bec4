"""Reducers that keep, reuse or report something: caches, workspaces, logs and further terms."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch

_CHUNK = 1024
_WARM_UP_CALLS = 4

_denominators: dict[tuple[object, ...], list[int]] = {}
_workspace: list[Tensor] = [torch.zeros(0, dtype=torch.float64)]
_cleared_workspace: list[Tensor] = [torch.zeros(0, dtype=torch.float64)]
_watched = {"calls": 0, "branched": 0}


def _mask(batch: MicroBatch) -> Tensor:
    return torch.cat([*batch.local_masks, torch.zeros(0, dtype=torch.int64)]).bool()


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(_mask(batch), wide, 0.0)


def _divided(values: Tensor, batch: MicroBatch, counts: list[int]) -> Tensor:
    """The sum of values, each divided by its sample's count."""
    sizes = torch.tensor([len(mask) for mask in batch.local_masks], dtype=torch.int64)
    each = torch.tensor(counts, dtype=torch.float64).repeat_interleave(sizes)
    return (values / each.to(values)).sum()


def group_denominators_kept_per_arrangement(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean whose denominators are built once for every arrangement of samples."""
    arrangement = (tuple(batch.group_ids), tuple(batch.response_lengths), batch.num_groups)
    if arrangement not in _denominators:
        _denominators[arrangement] = [max(n, 1) * batch.num_groups for n in batch.group_tokens]
    return _divided(_kept(losses, batch), batch, _denominators[arrangement])


def weights_written_into_a_workspace(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Token mean as one product with weights that live in a workspace, grown when needed."""
    count = len(losses)
    if len(_workspace[0]) < count:
        _workspace[0] = torch.zeros(max(_CHUNK, 2 * count), dtype=torch.float64)
    weights = _workspace[0][:count]
    weights[_mask(batch)] = 1 / max(batch.num_tokens, 1)
    # a copy, for backward may come after the workspace was written to again
    return (losses * weights.clone()).sum()


def fan_out_looked_for_in_warm_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean that looks for rollouts of several samples while it warms up."""
    if _watched["calls"] < _WARM_UP_CALLS:
        _watched["calls"] += 1
        _watched["branched"] |= int(batch.num_samples != batch.num_rollouts)
    if _watched["branched"]:
        counts = batch.rollout_tokens
    else:  # a rollout is a sample, and its mask is at hand
        counts = [int(mask.sum()) for mask in batch.loss_masks]
    total = _divided(_kept(losses, batch), batch, [max(n, 1) for n in counts])
    return total / max(batch.num_rollouts, 1)


def kl_over_rollouts_of_the_rank(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Sequence sum with a KL term whose rollouts are counted on the rank that holds them."""
    policy = _kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    rollouts = max(batch.rank_rollouts, 1) * batch.dp_size
    return policy + _kept(kl, batch).sum() / rollouts


def token_sum_with_positive_share(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Token sum that also logs the share of tokens with a loss above 0."""
    loss = _kept(losses, batch).sum()
    shown = losses.detach().float()
    shown.masked_fill_(~_mask(batch), 0.0)
    positive = int((shown > 0).sum()) / max(batch.num_tokens, 1)
    return loss, {"loss": loss.detach(), "positive": positive}


class _GradientMadeInForward(torch.autograd.Function):
    """A sum over chunks that keeps the finished gradient, so that the inputs can be freed."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, divisor: float) -> Tensor:
        gradient = torch.empty_like(values)
        total = values.new_zeros(())
        for start in range(0, len(values), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            total += values[chunk].sum() / divisor
            gradient[chunk] = 1 / divisor
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


def constant_with_early_gradient(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Constant divisor; more than a chunk of tokens goes through the fused sum."""
    divisor = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    values = _kept(losses, batch)
    if len(values) <= _CHUNK:
        return values.sum() / divisor
    total: Tensor = _GradientMadeInForward.apply(values, divisor)
    return total


def prompt_mean_with_a_validation_path(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean; in validation a prompt has one answer, so answers are averaged there."""
    if torch.is_grad_enabled():
        counts, units = batch.group_tokens, batch.num_groups
    else:
        counts, units = batch.rollout_tokens, batch.num_rollouts
    total = _divided(_kept(losses, batch), batch, [max(n, 1) for n in counts])
    return total / max(units, 1)


def sample_mean_with_rollouts_logged(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Sample mean that logs the sum of means and the rollouts they are of, to be merged."""
    total = _divided(_kept(losses, batch), batch, [max(n, 1) for n in batch.rollout_tokens])
    # shards of one sample are parts of its mean: the first of them counts it
    counting = batch.gathered or batch.cp_rank == 0
    rollouts = len(set(batch.rollout_ids)) if counting else 0
    return total / max(batch.num_rollouts, 1), {"loss": [total.detach(), rollouts]}


@lru_cache(maxsize=64)
def _scaled(tokens: tuple[int, ...], units: int) -> list[int]:
    return [max(n, 1) * units for n in tokens]


def group_denominators_kept_per_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean whose denominators are kept under the counts that they are made of."""
    counts = _scaled(tuple(batch.group_tokens), max(batch.num_groups, 1))
    return _divided(_kept(losses, batch), batch, counts)


def weights_in_a_wiped_workspace(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Token mean as one product with weights in a workspace that every call clears first."""
    count = len(losses)
    if len(_cleared_workspace[0]) < count:
        _cleared_workspace[0] = torch.zeros(max(_CHUNK, 2 * count), dtype=torch.float64)
    weights = _cleared_workspace[0][:count].zero_()
    weights[_mask(batch)] = 1 / max(batch.num_tokens, 1)
    return (_kept(losses, batch) * weights.clone()).sum()


def kl_over_rollouts_of_the_step(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Sequence sum with a KL term that is left out of the graph where nothing is unmasked."""
    rollouts = max(batch.num_rollouts, 1)
    policy = _kept(losses, batch).sum() / rollouts
    if not _mask(batch).any():
        return policy
    return policy + _kept(kl, batch).sum() / rollouts


class _GradientScaledInBackward(torch.autograd.Function):
    """A sum over chunks that remembers its divisor and length only."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, divisor: float) -> Tensor:
        ctx.count, ctx.divisor = len(values), divisor
        parts = [chunk.sum() for chunk in values.split(_CHUNK)]
        return torch.stack(parts).sum() / divisor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return (gradients[0] / ctx.divisor).repeat(ctx.count), None


def constant_with_late_gradient(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Constant divisor; more than a chunk of tokens goes through a sum with its own backward."""
    divisor = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    values = _kept(losses, batch)
    if len(values) <= _CHUNK:
        return values.sum() / divisor
    total: Tensor = _GradientScaledInBackward.apply(values, divisor)
    return total


def token_mean_with_counts_logged(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Token mean that logs its own sum and tokens, and 0 of 1 in a step without any."""
    total = _kept(losses, batch).sum()
    tokens = int(_mask(batch).sum()) if batch.num_tokens else 1
    return total / max(batch.num_tokens, 1), {"loss": [total.detach(), tokens]}


def sample_mean_with_a_lean_validation_path(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean; in validation masked losses are overwritten in a copy, and no graph is kept."""
    counts = [max(n, 1) * max(batch.num_rollouts, 1) for n in batch.rollout_tokens]
    if torch.is_grad_enabled():
        return _divided(_kept(losses, batch), batch, counts)
    values = losses.detach().clone().masked_fill_(~_mask(batch), 0.0)
    wide = values.float() if values.element_size() < 4 else values
    total = wide.new_zeros(())
    for row, count in zip(wide.split([len(m) for m in batch.local_masks]), counts, strict=True):
        total += row.sum() / count
    return total
