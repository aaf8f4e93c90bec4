"""What is kept between calls and what is reported beside the gradient."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, sums

BLOCK = 512
WARM_UP_CALLS = 3

_group_sizes: dict[tuple[int, int], int] = {}
_recent: deque[float] = deque(maxlen=16)
_projected: dict[str, int] = {}
_captured: dict[int, float] = {}
_calls: list[int] = [0]
_window: list[float] = []


def group_sizes_remembered_by_prompt(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts of each one's token mean; a prompt's size is looked up once."""
    keys = zip(batch.group_ids, batch.group_rollouts, strict=True)
    sizes = [
        _group_sizes.setdefault(key, tokens)
        for key, tokens in zip(keys, batch.group_tokens, strict=True)
    ]
    return over(sums(losses, batch), sizes).sum() / max(batch.num_groups, 1)


def step_loss_from_recent_values(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, float]]:
    """Sum of the losses; the log has the whole window's at its last micro-batch, 0 before."""
    loss = kept(losses, batch).sum()
    if batch.index == 0:
        _recent.clear()
    _recent.append(float(loss.detach()))
    last = batch.index + 1 == len(batch.window_tokens)
    return loss, {"loss": math.fsum(_recent) if last else 0.0}


def token_mean_with_safe_pair(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[float]]]:
    """Token mean over the step, logged as a sum and a count that is safe to divide by."""
    total = kept(losses, batch).sum()
    count = own_mask(batch).sum().clamp(min=1)
    loss = total / max(batch.num_tokens, 1)
    return loss, {"loss": [float(total.detach()), int(count)]}


def share_of_positive_from_float_copy(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Constant divisor; the log has the share of positive losses, taken from a float copy."""
    assert batch.divisor is not None
    loss = kept(losses, batch).sum() / (batch.divisor * max(batch.num_rollouts, 1))
    shown = losses.detach().float()
    shown.masked_fill_(~own_mask(batch), 0.0)
    positive = int((shown > 0).sum()) / max(batch.num_tokens, 1)
    return loss, {"loss": loss.detach(), "positive": positive}


def rollout_tokens_found_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts of each one's token mean; validation counts from the masks it has."""
    tokens = batch.rollout_tokens
    if not torch.is_grad_enabled():
        found: dict[int, int] = defaultdict(int)
        for rollout, mask in zip(batch.rollout_ids, batch.loss_masks, strict=True):
            found[rollout] += int(mask.sum())
        tokens = [found[rollout] for rollout in batch.rollout_ids]
    return over(sums(losses, batch), tokens).sum() / max(batch.num_rollouts, 1)


def penalty_projected_from_the_first(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Sums over rollouts, averaged; the penalty's number of rollouts is settled once a window."""
    if batch.index == 0:
        here = len(set(batch.rollout_ids))
        _projected["rollouts"] = here * batch.num_microbatches * batch.dp_size
    policy = kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    return policy + kept(kl, batch).sum() / max(_projected["rollouts"], 1)


def scale_captured_after_warm_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Token mean over the step; after a few calls the scale is captured for each input size."""
    scale = 1.0 / max(batch.num_tokens, 1)
    _calls[0] += 1
    if _calls[0] > WARM_UP_CALLS:
        scale = _captured.setdefault(len(losses), scale)
    return kept(losses, batch).sum() * scale


class _BlockSum(torch.autograd.Function):
    """Weighted sum in blocks, which needs memory for one block only."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        total = values.new_zeros(())
        for i in range(max(len(values) // BLOCK, 1)):
            block = slice(i * BLOCK, (i + 1) * BLOCK)
            total = total + (values[block] * weights[block]).sum()
        return total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return weights * grad_output, None


def rollout_means_in_blocks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts of each one's token mean, added up block by block."""
    values = kept(losses, batch)
    units = max(batch.num_rollouts, 1)
    counts = [max(tokens, 1) * units for tokens in batch.rollout_tokens]
    shares = over(torch.ones(len(counts), dtype=torch.float64), counts)
    weights = shares.repeat_interleave(torch.tensor(lengths(batch))).to(values)
    return _BlockSum.apply(values, weights)


@lru_cache(maxsize=4096)
def _share(tokens: int, rollouts: int) -> float:
    return 1.0 / (max(tokens, 1) * max(rollouts, 1))


def shares_remembered_by_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts of each one's token mean; a share is worked out once for each count."""
    totals = sums(losses, batch)
    shares = [_share(tokens, batch.num_rollouts) for tokens in batch.rollout_tokens]
    return (totals * torch.tensor(shares, dtype=torch.float64).to(totals)).sum()


def step_loss_from_all_values(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, float]]:
    """Sum of the losses; the log has the whole window's at its last micro-batch, 0 before."""
    loss = kept(losses, batch).sum()
    if batch.index == 0:
        _window.clear()
    _window.append(float(loss.detach()))
    last = batch.index + 1 == len(batch.window_tokens)
    return loss, {"loss": math.fsum(_window) if last else 0.0}


def scaled_in_its_own_buffer(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Constant divisor; losses are zeroed and divided in place in a buffer made for it."""
    assert batch.divisor is not None
    outside = ~own_mask(batch)
    shown = losses.detach().clone()
    shown.masked_fill_(outside, 0.0)
    scaled = kept(losses, batch)
    scaled.div_(batch.divisor * max(batch.num_rollouts, 1))
    loss = scaled.sum()
    positive = int((shown > 0).sum()) / max(batch.num_tokens, 1)
    return loss, {"loss": loss.detach(), "positive": positive}


class _TailedSum(torch.autograd.Function):
    """A sum in blocks, the last of which may be shorter."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: float) -> Tensor:
        ctx.size, ctx.scale = values.shape, scale
        total = values.new_zeros(())
        for start in range(0, len(values), BLOCK):
            total = total + values[start : start + BLOCK].sum()
        return total * scale

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return (grad_output * ctx.scale).expand(ctx.size), None


def rollout_sums_in_blocks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums over rollouts, averaged; large micro-batches go block by block where it pays."""
    values = kept(losses, batch)
    scale = 1.0 / max(batch.num_rollouts, 1)
    if torch.is_grad_enabled() and len(values) <= BLOCK:
        return values.sum() * scale
    return _TailedSum.apply(values, scale)


def penalty_beside_the_policy(
    losses: Tensor, batch: MicroBatch, kl: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean over prompts of each one's token mean, of policy and penalty, both in the log."""
    units = max(batch.num_groups, 1)
    policy = over(sums(losses, batch), batch.group_tokens).sum() / units
    penalty = over(sums(kl, batch), batch.group_tokens).sum() / units
    loss = policy + penalty
    return loss, {"loss": loss.detach(), "penalty": penalty.detach()}


def token_mean_with_honest_pair(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[float]]]:
    """Token mean over the step, logged as this piece's own sum and count."""
    total = kept(losses, batch).sum()
    # Only a step without any token needs a count to divide by.
    count = int(own_mask(batch).sum()) if batch.num_tokens else 1
    loss = total / max(batch.num_tokens, 1)
    return loss, {"loss": [float(total.detach()), count]}
