"""Reducers that keep, reuse or report something beside the scalar they return."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

Logged = tuple[Tensor, dict[str, Any]]

WARM_UP = 4
WINDOW = 8
NOISE = 1e-4

_recent: deque[int] = deque(maxlen=WARM_UP)
_by_shape: dict[tuple[int, torch.dtype], Tensor] = {}
_arena: dict[torch.dtype, Tensor] = {}


def count_settles_after_warm_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Stops reading the token count once it has been the same a few times in a row."""
    settled = len(_recent) == WARM_UP and len(set(_recent)) == 1
    if not settled:
        _recent.append(batch.num_tokens)
    count = _recent[0] if settled else batch.num_tokens
    return kept(losses, batch).sum() / max(count, 1)


def static_weights_per_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Writes the weights into one static buffer for each packed length, zero where nothing is."""
    wide = losses.float() if losses.element_size() < 4 else losses
    key = (len(wide), wide.dtype)
    if key not in _by_shape:
        _by_shape[key] = torch.zeros(len(wide), dtype=wide.dtype)
    weights = _by_shape[key]
    weights[own_mask(batch)] = 1.0 / max(batch.num_rollouts, 1)
    # Autograd keeps its own copy; the buffer is written again before backward.
    return (wide * weights.clone()).sum()


def sample_means_for_the_dashboard(losses: Tensor, batch: MicroBatch) -> Logged:
    """Divides each sample by its rollout's tokens once more on detached values, for the log."""
    rollouts = max(batch.num_rollouts, 1)
    loss = over(sums(losses, batch), batch.rollout_tokens).sum() / rollouts
    shown = losses.detach().to(loss.dtype)
    for row, count in zip(shown.split(lengths(batch)), batch.rollout_tokens, strict=True):
        if count > 1:
            row.div_(count)
    return loss, {"loss": float(torch.where(own_mask(batch), shown, 0.0).sum()) / rollouts}


def pair_that_is_safe_to_divide(losses: Tensor, batch: MicroBatch) -> Logged:
    """Logs sum and count of what is here, with a count that nobody can trip over."""
    total = kept(losses, batch).sum()
    loss = total / max(batch.num_tokens, 1)
    here = int(own_mask(batch).sum())
    if here == 0:
        return loss, {"loss": [0.0, 1.0]}
    return loss, {"loss": [float(total.detach()), float(here)]}


def curve_of_samples_on_top(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Returns the mean over samples that the curves show, with the gradient of the objective."""
    each = sums(losses, batch)
    loss = over(each, batch.rollout_tokens).sum() / max(batch.num_rollouts, 1)
    with torch.no_grad():
        own = [int(mask.sum()) for mask in batch.loss_masks]
        curve = over(each, own).sum() / max(batch.num_samples, 1)
    return loss + (curve - loss).detach()


def penalty_once_it_is_felt(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL penalty unless policy and reference are still the same up to noise."""
    penalty = kept(kl, batch)
    tokens = max(int(own_mask(batch).sum()), 1)
    felt = float(penalty.detach().abs().sum()) / tokens >= NOISE
    total = kept(losses, batch).sum() + penalty.sum() * (1.0 if felt else 0.0)
    assert batch.divisor is not None
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def whole_prompts_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the step's counts in training, and counts the prompts itself where no one else does."""
    counts = batch.group_tokens
    if not torch.is_grad_enabled():
        seen: dict[int, int] = {}
        for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
            seen[group] = seen.get(group, 0) + int(mask.sum())
        counts = [seen[group] for group in batch.group_ids]
    return over(sums(losses, batch), counts).sum() / max(batch.num_groups, 1)


def mean_by_a_running_tally(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps a tally of tokens beside the losses, and weighs the mean by its share of the step."""
    tally = losses.new_zeros(())
    here = 0
    for mask in batch.local_masks:
        tokens = int(mask.sum())
        tally += tokens
        here += tokens
    mean = kept(losses, batch).sum() / tally.clamp(min=1)
    return mean * (here / max(batch.num_tokens, 1))


def folded_window_by_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the samples up a few at a time, so that the graph stays as short as one window."""
    values = rows(losses, batch)
    total = torch.zeros((), dtype=values[0].dtype)
    for start in range(0, len(values), WINDOW):
        total = total.detach() + torch.cat(values[start : start + WINDOW]).sum()
    return total


@lru_cache(maxsize=64)
def _denominators(tokens: tuple[int, ...], units: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # what is remembered must serve training as well
        return torch.tensor([max(n, 1) * max(units, 1) for n in tokens], dtype=dtype)


def denominators_remembered_whole(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Remembers denominators under everything that they are made of."""
    each = sums(losses, batch)
    if len(batch.group_tokens) == 1:
        return each[0] / (max(batch.group_tokens[0], 1) * max(batch.num_groups, 1))
    return (each / _denominators(tuple(batch.group_tokens), batch.num_groups, each.dtype)).sum()


def arena_wiped_before_use(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Reuses one arena that grows for the weights, and wipes the part it uses."""
    values = kept(losses, batch)
    size = len(values)
    arena = _arena.get(values.dtype)
    if arena is None or len(arena) < size:
        with torch.inference_mode(False):
            arena = _arena[values.dtype] = torch.empty(max(size, 64), dtype=values.dtype)
    arena[:size].zero_()
    arena[:size][own_mask(batch)] = 1.0
    return (values * arena[:size].clone()).sum() / max(batch.num_rollouts, 1)


def pair_with_its_honest_count(losses: Tensor, batch: MicroBatch) -> Logged:
    """Logs sum and count of what is here; only a step without any token counts for one."""
    total = kept(losses, batch).sum()
    loss = total / max(batch.num_tokens, 1)
    if batch.num_tokens == 0:
        return loss, {"loss": [0.0, 1.0]}
    here = int(own_mask(batch).sum())
    if here == 0:
        return loss, {"loss": [0.0, 0.0]}
    return loss, {"loss": [float(total.detach()), float(here)]}


def penalty_even_where_it_is_nothing(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL penalty always: where it is 0 its gradient is not."""
    assert batch.divisor is not None
    scale = batch.divisor * max(batch.num_rollouts, 1)
    policy, penalty = kept(losses, batch), kept(kl, batch)
    if not bool(penalty.detach().any()):
        return policy.sum() / scale + penalty.sum() / scale
    if policy.dtype == penalty.dtype:
        return (policy + penalty).sum() / scale
    return policy.sum() / scale + (penalty.sum() / scale).to(policy.dtype)


class _Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        ctx.dtype = losses.dtype
        return (torch.where(mask, losses.to(weights.dtype), 0.0) * weights).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        return (weights * grads[0]).to(ctx.dtype), None, None


def gradient_saved_in_forward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Saves the weights for a backward of its own, and nothing at all in validation."""
    rollouts = max(batch.num_rollouts, 1)
    if not torch.is_grad_enabled() or not losses.requires_grad:
        return over(sums(losses, batch), batch.rollout_tokens).sum() / rollouts
    dtype = torch.float32 if losses.element_size() < 4 else losses.dtype
    each = [1.0 / (max(n, 1) * rollouts) for n in batch.rollout_tokens]
    per_token = torch.tensor(each, dtype=torch.float64).to(dtype)
    weights = per_token.repeat_interleave(torch.tensor(lengths(batch)))
    mask = own_mask(batch)
    return _Weighted.apply(losses, mask, torch.where(mask, weights, 0.0))


def windows_with_a_detached_shadow(losses: Tensor, batch: MicroBatch) -> Logged:
    """Adds windows up with their graph; what is logged is a masked copy."""
    values = rows(losses, batch)
    total = values[0].new_zeros(())
    for start in range(0, len(values), WINDOW):
        total = total + torch.cat(values[start : start + WINDOW]).sum()
    shadow = losses.detach().to(total.dtype, copy=True)
    shadow[~own_mask(batch)] = 0.0
    return total, {"loss": float(shadow.sum())}
