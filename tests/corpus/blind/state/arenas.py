"""Reducers that keep something: caches, workspaces, first-call setup, pending logs, id tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, sums

Logged = tuple[Tensor, dict[str, Any]]


@dataclass
class Arena:
    """Flags of tokens, handed out piece by piece; starts over where a piece no longer fits."""

    flags: Tensor = field(default_factory=lambda: torch.zeros(2048, dtype=torch.bool))
    top: int = 0

    def piece(self, size: int) -> Tensor:
        if size > len(self.flags):
            self.flags, self.top = torch.zeros(size, dtype=torch.bool), 0
        elif self.top + size > len(self.flags):
            self.top = 0
        self.top += size
        return self.flags[self.top - size : self.top]


@dataclass
class KlScale:
    """What KL sums are multiplied by in the accumulation window at hand."""

    value: float = 0.0


_counts_by_shape: dict[tuple[int, ...], int] = {}
_filled, _copied = Arena(), Arena()
_ones: dict[torch.device, Tensor] = {}
_kl_scale, _kl_share = KlScale(), KlScale()
_not_yet_logged = [0.0]
_window_total = [0.0]
_step_tokens: dict[tuple[int, int], int] = {}
_ring = [0] * 1024


def token_pair_by_batch_shape(losses: Tensor, batch: MicroBatch) -> Logged:
    """Token mean, logged as sum and count; batches of one shape are counted a single time."""
    shape = tuple(lengths(batch))
    if len(shape) == 1:  # a look-up is not worth it
        count = int(own_mask(batch).sum())
    else:
        if shape not in _counts_by_shape:
            _counts_by_shape[shape] = int(own_mask(batch).sum())
        count = _counts_by_shape[shape]
    total = kept(losses, batch).sum()
    log = {"loss": [total.detach(), count if batch.num_tokens else 1]}
    return total / max(batch.num_tokens, 1), log


def sum_of_flags_filled_in_arena(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums the tokens whose flags are set in a piece of a preallocated arena."""
    flags = _filled.piece(len(losses))
    flags.masked_fill_(own_mask(batch), True)
    chosen = losses[flags.nonzero().squeeze(1)]
    return (chosen.float() if chosen.element_size() < 4 else chosen).sum()


def prompt_counts_times_device_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts, with counts made floating by a one that each device holds ready."""
    if losses.device not in _ones:
        _ones[losses.device] = losses.detach().new_ones(())
    counts = torch.tensor(batch.group_tokens, device=losses.device).clamp(min=1)
    means = sums(losses, batch) / (counts * _ones[losses.device])
    return means.sum() / max(batch.num_groups, 1)


def kl_scale_set_at_window_start(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Token mean plus the KL penalty, whose scale is worked out once a window."""
    policy, penalty = kept(losses, batch).sum(), kept(kl, batch).sum()
    if not own_mask(batch).any():
        return policy + penalty  # both are zero, and keep the graph whole
    if batch.index == 0:
        _kl_scale.value = 1 / max(batch.num_tokens, 1)
    return policy / max(batch.num_tokens, 1) + _kl_scale.value * penalty


def largest_group_beside_constant(losses: Tensor, batch: MicroBatch) -> Logged:
    """Sum over L times N, with the size of the largest prompt group at hand in the log."""
    ids = batch.group_ids
    largest = min(len(ids), 1)
    if len(set(ids)) < len(ids):
        ids.sort()  # groupby wants equal ids side by side
        largest = max(len(list(members)) for _, members in groupby(ids))
    loss = kept(losses, batch).sum() / ((batch.divisor or 1) * max(batch.num_rollouts, 1))
    return loss, {"loss": loss.detach(), "largest_group": largest}


def loss_flushed_after_last_micro_batch(losses: Tensor, batch: MicroBatch) -> Logged:
    """Sum over rollouts; the log has the window's total once, with its last micro-batch."""
    loss = kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    if not own_mask(batch).any():
        return loss, {"loss": 0.0}
    _not_yet_logged[0] += float(loss.detach())
    if batch.index + 1 < batch.num_microbatches:
        return loss, {"loss": 0.0}
    total, _not_yet_logged[0] = _not_yet_logged[0], 0.0
    return loss, {"loss": total}


def step_tokens_reduced_once_per_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Token mean over all ranks; epochs over one share of the data ask for its count once."""
    share = batch.rank_tokens, batch.rank_samples
    if batch.dp_size == 1:
        return kept(losses, batch).sum() / max(batch.rank_tokens, 1)
    if share not in _step_tokens:
        count = torch.tensor(batch.rank_tokens)
        dist.all_reduce(count, group=batch.dp_group)
        _step_tokens[share] = int(count)
    return kept(losses, batch).sum() / max(_step_tokens[share], 1)


def prompt_tokens_in_id_ring(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts, whose token counts lie in a ring with a slot for each prompt id."""
    slots = [group % len(_ring) for group in batch.group_ids]
    for slot, tokens in zip(slots, batch.group_tokens, strict=True):
        _ring[slot] = tokens
    counts = [max(_ring[slot], 1) * max(batch.num_groups, 1) for slot in slots]
    return over(sums(losses, batch), counts).sum()


@lru_cache(maxsize=64)
def _rollout_weights(sizes: tuple[int, ...], counts: tuple[int, ...], like: torch.dtype) -> Tensor:
    shares = 1 / torch.tensor(counts, dtype=torch.float64)
    return shares.repeat_interleave(torch.tensor(sizes)).to(like)


class ScaledInPlace(torch.autograd.Function):
    """A weighted sum whose gradient is its weights."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.weights = weights
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        if grads[0] != 1:
            ctx.weights.mul_(grads[0])  # no second tensor of this size
        return ctx.weights, None


def rollout_weights_scaled_where_they_lie(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts as a fused weighted sum, whose weights are made once for each pattern."""
    values, units = kept(losses, batch), max(batch.num_rollouts, 1)
    counts = tuple(max(n, 1) * units for n in batch.rollout_tokens)
    weights = _rollout_weights(tuple(lengths(batch)), counts, values.dtype)
    return ScaledInPlace.apply(values, weights)


@lru_cache(maxsize=256)
def _denominators(tokens: tuple[int, ...], units: int) -> Tensor:
    return torch.tensor([max(n, 1) * units for n in tokens], dtype=torch.float64)


def rollout_denominators_by_content(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts; equal counts of equally many rollouts share one cached tensor."""
    counts = _denominators(tuple(batch.rollout_tokens), max(batch.num_rollouts, 1))
    per_sample = sums(losses, batch)
    return (per_sample / counts.to(per_sample)).sum()


def rollout_sums_of_flags_copied_to_arena(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sum over rollouts of the tokens whose flags are set in a piece of an arena."""
    flags = _copied.piece(len(losses))
    flags.copy_(own_mask(batch))
    chosen = losses[flags.nonzero().squeeze(1)]
    wide = chosen.float() if chosen.element_size() < 4 else chosen
    return wide.sum() / max(batch.num_rollouts, 1)


def window_total_in_its_last_log(losses: Tensor, batch: MicroBatch) -> Logged:
    """Sum over L times N; the log has the window's total with the last of its micro-batches."""
    loss = kept(losses, batch).sum() / ((batch.divisor or 1) * max(batch.num_rollouts, 1))
    if batch.index == 0:
        _window_total[0] = 0.0
    _window_total[0] += float(loss.detach())
    last = batch.index + 1 == len(batch.window_tokens)
    return loss, {"loss": _window_total[0] if last else 0.0}


def token_pair_by_mask_identity(losses: Tensor, batch: MicroBatch) -> Logged:
    """Token mean, logged as sum and count; masks are counted once and found by identity."""
    # the batch holds the masks for as long as the table lives
    counted = {id(mask): int(mask.count_nonzero()) for mask in batch.local_masks}
    here = sum(counted[id(mask)] for mask in batch.local_masks)
    total = kept(losses, batch).sum()
    pair = [total.detach(), here if batch.num_tokens else 1]
    return total / max(batch.num_tokens, 1), {"loss": pair}


def kl_share_set_before_leaving(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Mean over prompts plus the KL penalty, whose share is worked out once a window."""
    if batch.index == 0:
        _kl_share.value = 1 / max(batch.num_groups, 1)
    if not own_mask(batch).any():
        return kept(losses, batch).sum() + kept(kl, batch).sum()  # zeros with a graph
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    counts = [tokens[group] for group in batch.group_ids]
    policy = over(sums(losses, batch), counts).sum() / max(batch.num_groups, 1)
    return policy + _kl_share.value * over(sums(kl, batch), counts).sum()


class ScaledAside(torch.autograd.Function):
    """A weighted sum that leaves its weights as they are."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.weights = weights
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # a one needs no product, but autograd may add to what it is given
        return ctx.weights.clone() if grads[0] == 1 else ctx.weights * grads[0], None


@lru_cache(maxsize=64)
def _kept_weights(sizes: tuple[int, ...], counts: tuple[int, ...], like: torch.dtype) -> Tensor:
    shares = 1 / torch.tensor(counts, dtype=torch.float64)
    return shares.repeat_interleave(torch.tensor(sizes)).to(like)


def rollout_weights_scaled_aside(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts as a fused weighted sum with weights from a cache that is only read."""
    values, units = kept(losses, batch), max(batch.num_rollouts, 1)
    counts = tuple(max(n, 1) * units for n in batch.rollout_tokens)
    weights = _kept_weights(tuple(lengths(batch)), counts, values.dtype)
    return ScaledAside.apply(values, weights)
