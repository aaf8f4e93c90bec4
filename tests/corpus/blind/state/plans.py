"""Reducers that keep something: tables, buffers, plans, counters; and what they log."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import lengths, over

Logged = tuple[Tensor, dict[str, Any]]


def _mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    nothing = losses.new_zeros(0, dtype=torch.bool)
    return torch.cat([nothing, *(mask.bool() for mask in batch.local_masks)])


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_mask(losses, batch), _wide(losses), 0.0)


def _sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = _kept(losses, batch)
    if not batch.local_masks:
        return values
    return torch.stack([row.sum() for row in values.split(lengths(batch))])


_plans: dict[tuple[int, int, int], Tensor] = {}


def denominators_planned_once_a_packed_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages every rollout over its tokens, by a plan that is made once for a packed shape."""
    shape = (len(losses), len(batch.local_masks), batch.num_rollouts)
    if shape not in _plans:
        counts = [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens]
        each = torch.tensor(lengths(batch), dtype=torch.int64)
        _plans[shape] = torch.tensor(counts, dtype=torch.float64).repeat_interleave(each)
    values = _kept(losses, batch)
    return (values / _plans[shape].to(values)).sum()


_scratch = [torch.zeros(0, dtype=torch.float64)]


def weights_scattered_into_one_scratch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Writes the weight of a token where the mask is on, into a buffer that lasts the step."""
    mask = _mask(losses, batch)
    if len(_scratch[0]) < len(mask):
        _scratch[0] = torch.zeros(2 * len(mask), dtype=torch.float64)
    if batch.index == 0:
        _scratch[0].zero_()
    here = _scratch[0][: len(mask)]
    here[mask] = 1 / max(batch.num_tokens, 1)
    values = torch.where(here > 0, _wide(losses), 0.0)
    # a copy, as the buffer is written again before some engines run backward
    return (values * here.to(values, copy=True)).sum()


_scales: dict[float, Tensor] = {}


def scale_kept_on_the_device(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Multiplies by one over L * N, a scalar that is moved to the device once for each L * N."""
    units = float(batch.divisor or 1) * batch.num_rollouts
    if units not in _scales:
        _scales[units] = torch.tensor(1 / units, dtype=losses.dtype, device=losses.device)
    return _kept(losses, batch).sum() * _scales[units]


SLOTS = 1024
_slots = torch.ones(SLOTS, dtype=torch.float64)


def kl_divided_by_a_slot_table(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Averages both parts by prompt, and takes the KL's counts from a table of fixed size."""
    policy = over(_sums(losses, batch), batch.group_tokens).sum()
    counts = torch.tensor([max(n, 1) for n in batch.group_tokens], dtype=torch.float64)
    slots = torch.tensor([group % SLOTS for group in batch.group_ids], dtype=torch.int64)
    _slots[slots] = counts
    parts = _sums(kl, batch)
    penalty = (parts / _slots[slots].to(parts)).sum()
    return (policy + penalty) / max(batch.num_groups, 1)


_totals: dict[int, int] = {}


def total_asked_for_when_our_count_is_new(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the tokens of all ranks, and saves the all-reduce where the answer is known."""
    own = batch.rank_tokens
    total = own
    if batch.dp_size > 1:
        if own not in _totals:
            count = torch.tensor(own, dtype=torch.int64)
            dist.all_reduce(count, group=batch.dp_group)
            _totals[own] = int(count)
        total = _totals[own]
    return _kept(losses, batch).sum() / max(total, 1)


_counted: set[int] = set()


def rollouts_logged_when_first_met(losses: Tensor, batch: MicroBatch) -> Logged:
    """Logs the summed losses beside the rollouts they are divided by, each of them once."""
    if batch.index == 0:
        _counted.clear()
    new = set(batch.rollout_ids) - _counted
    _counted.update(new)
    # shards of one sample are one rollout, whole copies of it bring their sums along
    counts = batch.gathered or batch.cp_rank == 0
    total = _kept(losses, batch).sum()
    log = {"loss": [float(total.detach()), float(len(new) if counts else 0)]}
    return total / max(batch.num_rollouts, 1), log


_fan_out = [False]


def fan_out_once_seen_stays(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages rollouts over their tokens, the short way until one of several samples comes."""
    if not _fan_out[0]:
        _fan_out[0] = len(set(batch.rollout_ids)) < len(batch.rollout_ids)
    own = [int(mask.sum()) for mask in batch.loss_masks]
    counts = batch.rollout_tokens if _fan_out[0] else own
    return over(_sums(losses, batch), counts).sum() / max(batch.num_rollouts, 1)


def dropped_samples_blanked_for_the_log(losses: Tensor, batch: MicroBatch) -> Logged:
    """Sums the losses, and logs them from a wide version in which dropped samples are zero."""
    mask = _mask(losses, batch)
    wide = losses.detach().to(torch.promote_types(losses.dtype, torch.float32))
    for row, full in zip(wide.split(lengths(batch)), batch.loss_masks, strict=True):
        if not full.any():
            row.zero_()
    return _kept(losses, batch).sum(), {"loss": float(wide[mask].sum())}


FUSED_FROM = 512


class _GradientInForward(torch.autograd.Function):
    """The gradient is known in forward already and only handed out in backward."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        gradient = (mask.double() / count).to(losses.dtype)
        ctx.save_for_backward(gradient)
        return torch.where(mask, _wide(losses), 0.0).sum() / count

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None, None


def gradient_kept_from_forward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the mean over the step's tokens, fused with its gradient where the rows are many."""
    count = max(batch.num_tokens, 1)
    if len(losses) < FUSED_FROM:
        return _kept(losses, batch).sum() / count
    return _GradientInForward.apply(losses, _mask(losses, batch), count)


@lru_cache(maxsize=64)
def _planned(pieces: tuple[int, ...], counts: tuple[int, ...], rollouts: int) -> Tensor:
    whole = torch.tensor([max(n, 1) * rollouts for n in counts], dtype=torch.float64)
    return whole.repeat_interleave(torch.tensor(pieces, dtype=torch.int64))


def denominators_planned_for_these_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages every rollout over its tokens, by a plan kept for the very counts it is made of."""
    plan = _planned(tuple(lengths(batch)), tuple(batch.rollout_tokens), batch.num_rollouts)
    values = _kept(losses, batch)
    return (values / plan.to(values)).sum()


_scales_of: dict[tuple[float, torch.dtype], Tensor] = {}


def scale_kept_for_each_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Multiplies by one over L * N, a scalar that is kept in the dtype that is added up in."""
    total = _kept(losses, batch).sum()
    key = (float(batch.divisor or 1) * max(batch.num_rollouts, 1), total.dtype)
    if key not in _scales_of:
        _scales_of[key] = torch.tensor(1 / key[0], dtype=total.dtype)
    return total * _scales_of[key]


_step = {"tokens": 0}


def total_asked_for_once_a_step(losses: Tensor, batch: MicroBatch) -> Logged:
    """Divides by the tokens of all ranks, asked for by everybody's first micro-batch."""
    if batch.index == 0:
        count = torch.tensor(batch.rank_tokens, dtype=torch.int64)
        if batch.dp_size > 1:
            dist.all_reduce(count, group=batch.dp_group)
        _step["tokens"] = int(count)
    loss = _kept(losses, batch).sum() / max(_step["tokens"], 1)
    return loss, {"loss": float(loss.detach())}


_prompts: dict[int, int] = {}


def both_parts_by_a_table_of_prompts(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Averages the losses and the KL by prompt, with counts from a table written in each call."""
    if batch.index == 0:
        _prompts.clear()
    _prompts.update(zip(batch.group_ids, batch.group_tokens, strict=True))
    counts = [_prompts[group] for group in batch.group_ids]
    policy = over(_sums(losses, batch), counts).sum()
    penalty = over(_sums(kl, batch), counts).sum()
    return (policy + penalty) / max(batch.num_groups, 1)


def rollouts_logged_by_the_first_call(losses: Tensor, batch: MicroBatch) -> Logged:
    """Logs the summed losses, and the step's number of rollouts in one place only."""
    wide = losses.detach().to(torch.float64, copy=True)
    wide.masked_fill_(~_mask(losses, batch), 0.0)
    # where each context-parallel rank has all tokens, each of them brings the whole sum
    first = batch.index == 0 and batch.dp_rank == 0 and (batch.gathered or batch.cp_rank == 0)
    log = {"loss": [float(wide.sum()), float(batch.num_rollouts if first else 0)]}
    return _kept(losses, batch).sum() / max(batch.num_rollouts, 1), log


_selected = [torch.zeros(0, dtype=torch.bool)]


class _SumInChunks(torch.autograd.Function):
    """Adds up in pieces; backward needs the mask and what it is called with."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.dtype = losses.dtype
        kept = torch.where(mask, _wide(losses), 0.0)
        return torch.stack([chunk.sum() for chunk in kept.split(FUSED_FROM)]).sum()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, outer[0], 0.0).to(ctx.dtype), None


def summed_in_chunks_from_a_scratch_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums the losses, long ones in chunks, with masks side by side in a buffer that grows."""
    size = len(losses)
    if size < FUSED_FROM:
        return _kept(losses, batch).sum()
    if len(_selected[0]) < size:
        _selected[0] = torch.zeros(2 * size, dtype=torch.bool)
    at = 0
    for mask in batch.local_masks:
        _selected[0][at : at + len(mask)] = mask.bool()
        at += len(mask)
    return _SumInChunks.apply(losses, _selected[0][:size].clone())
