"""What is kept between calls, and what is reported beside the loss."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch

CHUNK = 512
WARM_UP = 3

_by_shape: dict[tuple[int, ...], Tensor] = {}
_workspace: list[Tensor] = []
_cleared_workspace: list[Tensor] = []
_met: set[int] = set()
_calls: dict[int, int] = {}
_captured: dict[int, int] = {}
_plans: dict[tuple[int, ...], Tensor] = {}
_plan_calls: dict[tuple[int, ...], int] = {}


def _mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    nothing = losses.new_zeros(0, dtype=torch.bool)
    return torch.cat([nothing, *(mask.bool() for mask in batch.local_masks)])


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_mask(losses, batch), _wide(losses), 0.0)


def _sizes(batch: MicroBatch) -> tuple[int, ...]:
    return tuple(len(mask) for mask in batch.local_masks)


def _spread(counts: list[int], sizes: tuple[int, ...]) -> Tensor:
    """The count of each token's sample, at least 1."""
    # A tensor made in inference mode could not be used in training later.
    with torch.inference_mode(False):
        each = torch.tensor([max(n, 1) for n in counts], dtype=torch.float64)
        return each.repeat_interleave(torch.tensor(sizes, dtype=torch.int64))


def _rollout_counts(batch: MicroBatch) -> list[int]:
    return [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens]


def _group_counts(batch: MicroBatch) -> list[int]:
    return [max(n, 1) * batch.num_groups for n in batch.group_tokens]


def _room(kept: list[Tensor], size: int, like: Tensor) -> Tensor:
    """The first cells of a workspace, which is made anew where it is too small."""
    if not kept or len(kept[0]) < size or kept[0].device != like.device:
        with torch.inference_mode(False):
            kept[:] = [torch.zeros(size, dtype=torch.float64, device=like.device)]
    return kept[0][:size]


def layout_of_recurring_shapes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rectangular micro-batches recur, so their denominators are laid out once per shape."""
    sizes = _sizes(batch)
    if len(sizes) > 1 and len(set(sizes)) == 1:
        key = (batch.num_rollouts, *sizes)
        if key not in _by_shape:
            _by_shape[key] = _spread(_rollout_counts(batch), sizes)
        counts = _by_shape[key]
    else:
        counts = _spread(_rollout_counts(batch), sizes)
    values = _kept(losses, batch)
    return (values / counts.to(values)).sum()


def weights_in_a_growing_workspace(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Unmasked tokens get their weight in a workspace that grows to the largest micro-batch."""
    weights = _room(_workspace, len(losses), losses)
    start = 0
    for mask, count in zip(batch.local_masks, _group_counts(batch), strict=True):
        weights[start : start + len(mask)][mask.bool()] = 1 / max(count, 1)
        start += len(mask)
    wide = _wide(losses)
    # A copy, as the next micro-batch writes into the workspace.
    own = weights.to(wide, copy=True)
    return (torch.where(own > 0, wide, 0.0) * own).sum()


def rollouts_logged_at_first_sight(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Logs the sum of the rollouts' means over the number of rollouts, each counted once."""
    if batch.index == 0:
        _met.clear()
    fresh = set(batch.rollout_ids) - _met
    _met.update(fresh)
    values = _kept(losses, batch)
    total = (values / _spread(batch.rollout_tokens, _sizes(batch)).to(values)).sum()
    # Shards of a sample are summed over context parallelism, its rollout is counted once.
    counted = len(fresh) if batch.gathered or batch.cp_rank == 0 else 0
    log = {"loss": [float(total.detach()), float(counted)]}
    return total / max(batch.num_rollouts, 1), log


def kl_chunk_by_chunk(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL term up chunk by chunk, so that the graph stays as small as one chunk."""
    policy = _kept(losses, batch).sum()
    divergence = policy.new_zeros(())
    for chunk in _kept(kl, batch).split(CHUNK):
        divergence = divergence.detach() + chunk.sum()
    assert batch.divisor is not None
    return (policy + divergence) / (batch.divisor * max(batch.num_rollouts, 1))


class _Fused(torch.autograd.Function):
    """Makes the gradient in forward, in the dtype of the losses."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        wide = _wide(losses)
        ctx.save_for_backward((mask.to(wide) / count).to(losses.dtype))
        return torch.where(mask, wide, 0.0).sum() / count

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        if gradient.dtype == outer[0].dtype:
            gradient = gradient * outer[0]
        return gradient, None, None


def gradient_ready_after_forward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One pass makes both the loss and its gradient, which is never promoted to another dtype."""
    loss: Tensor = _Fused.apply(losses, _mask(losses, batch), max(batch.num_tokens, 1))
    return loss


def validation_over_what_was_answered(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages over rollouts, and in validation over the responses that hold anything."""
    total = _kept(losses, batch).sum()
    if torch.is_grad_enabled():
        return total / max(batch.num_rollouts, 1)
    return total / max(batch.num_valid_samples, 1)


def prompts_in_the_log(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Weighs by prompt group, and logs how many of them are in this micro-batch."""
    values = _kept(losses, batch)
    loss = (values / _spread(_group_counts(batch), _sizes(batch)).to(values)).sum()
    names = batch.group_ids
    names.sort()
    prompts = sum(1 for _ in groupby(names))
    return loss, {"loss": loss.detach(), "prompts": float(prompts)}


def replayed_once_it_is_warm(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Runs eagerly for a few calls of each size, and then replays what was captured for it."""
    size = len(losses)
    _calls[size] = _calls.get(size, 0) + 1
    if _calls[size] <= WARM_UP:
        _captured[size] = max(batch.num_tokens, 1)
    return _kept(losses, batch).sum() / _captured[size]


def running_sum_over_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds sample after sample, each summed in float32, to one running sum."""
    values = _kept(losses, batch)
    total = losses.new_zeros(())
    for row in values.split(_sizes(batch)):
        total += row.sum()
    return total


@lru_cache(maxsize=64)
def _memoised(counts: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    return _spread(list(counts), sizes)


def layout_of_recurring_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Denominators are laid out once for the same counts of the same sizes."""
    counts = _memoised(tuple(_rollout_counts(batch)), _sizes(batch))
    values = _kept(losses, batch)
    return (values / counts.to(values)).sum()


def weights_in_a_cleared_workspace(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Writes the weights into a workspace that is kept, and cleared before it is used."""
    weights = _room(_cleared_workspace, len(losses), losses).zero_()
    start = 0
    for mask, count in zip(batch.local_masks, _group_counts(batch), strict=True):
        weights[start : start + len(mask)][mask.bool()] = 1 / max(count, 1)
        start += len(mask)
    values = _kept(losses, batch)
    # A copy, as the next micro-batch writes into the workspace.
    return (values * weights.to(values, copy=True)).sum()


class _Scaled(torch.autograd.Function):
    """Makes the gradient in forward, and scales it in backward before it is rounded."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        wide = _wide(losses)
        ctx.dtype = losses.dtype
        ctx.save_for_backward(mask.to(wide) / count)
        return torch.where(mask, wide, 0.0).sum() / count

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * outer[0]).to(ctx.dtype), None, None


def gradient_scaled_in_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One pass makes both the loss and its gradient; where none is wanted, only the loss."""
    count = max(batch.num_rollouts, 1)
    if not (torch.is_grad_enabled() and losses.requires_grad):
        return _kept(losses, batch).sum() / count
    loss: Tensor = _Scaled.apply(losses, _mask(losses, batch), count)
    return loss


def kl_summed_over_chunks(
    losses: Tensor, batch: MicroBatch, kl: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    """Adds the KL term up chunk by chunk, and logs its share of the step beside the loss."""
    assert batch.divisor is not None
    count = batch.divisor * max(batch.num_rollouts, 1)
    policy = _kept(losses, batch).sum()
    divergence = policy.new_zeros(())
    for chunk in _kept(kl, batch).split(CHUNK):
        divergence = divergence + chunk.sum()
    loss = (policy + divergence) / count
    return loss, {"loss": loss.detach(), "kl": divergence.detach() / count}


def tokens_logged_where_they_are(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Logs the sum and the tokens of this very piece, to be divided once all are added."""
    total = _kept(losses, batch).sum()
    here = sum(int(mask.sum()) for mask in batch.local_masks)
    # Nothing but zeros is added up where the whole step has no token: any count will do.
    here = here if batch.num_tokens else 1
    log = {"loss": [float(total.detach()), float(here)]}
    return total / max(batch.num_tokens, 1), log


def _segments(sizes: tuple[int, ...]) -> Tensor:
    with torch.inference_mode(False):
        places = torch.arange(len(sizes))
        return places.repeat_interleave(torch.tensor(sizes, dtype=torch.int64))


def plan_kept_once_it_is_warm(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Keeps which token is of which sample for sizes that recur; counts are always this call's."""
    sizes = _sizes(batch)
    _plan_calls[sizes] = _plan_calls.get(sizes, 0) + 1
    plan = _plans.get(sizes)
    if plan is None:
        plan = _segments(sizes).to(losses.device)
    if _plan_calls[sizes] == WARM_UP:
        _plans[sizes] = plan
    values = _kept(losses, batch)
    sums = values.new_zeros(len(sizes)).index_add(0, plan, values)
    counts = torch.tensor([max(n, 1) for n in _rollout_counts(batch)], dtype=torch.float64)
    loss = (sums / counts.to(sums)).sum()
    report = sums.detach().clone()
    report.div_(counts.to(sums))
    return loss, {"loss": report.sum(), "samples": float(len(sizes))}
