"""Reducers that keep something between calls, that log, or that add an auxiliary term."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

Logged = tuple[Tensor, dict[str, Any]]

_group_shares: dict[tuple[int, ...], Tensor] = {}
_unflushed: list[Tensor] = []
_unit_scales: dict[tuple[int, torch.dtype], Tensor] = {}
_traits: dict[str, bool] = {}
_kl_spread: dict[tuple[int, ...], Tensor] = {}
_step_totals: dict[int, int] = {}
_rows_met: set[tuple[int, int, int]] = set()


def _reciprocals(size: int) -> Tensor:
    return 1 / torch.arange(size, dtype=torch.float64).clamp(min=1)


_inverse_lengths = [_reciprocals(64)]


def prompt_shares_from_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The prompt mean, with every group's share looked up once it has been computed."""
    key = (batch.num_groups, *batch.group_tokens)
    if key not in _group_shares:
        counts = torch.tensor(batch.group_tokens, dtype=torch.float64).clamp(min=1)
        _group_shares[key] = (1 / (counts * batch.num_groups)).to(losses.dtype)
    totals = sums(losses, batch)
    return (totals * _group_shares[key].to(totals.dtype)).sum()


def loss_logged_in_bundles(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean; its log is written for four micro-batches at once, and after the last one."""
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    if batch.index == 0:
        _unflushed.clear()
    _unflushed.append(loss.detach())
    done = batch.index + 1
    if done % 4 and done < len(batch.window_masks):
        return loss, {"loss": torch.zeros_like(loss.detach())}
    return loss, {"loss": torch.stack(_unflushed).sum()}


def constant_with_cleaned_log(losses: Tensor, batch: MicroBatch) -> Logged:
    """The sum over a constant, and the same of detached and cleaned values for the log."""
    assert batch.divisor is not None
    units = batch.divisor * batch.num_rollouts
    loss = kept(losses, batch).sum() / units
    shown = losses.detach().to(torch.promote_types(losses.dtype, torch.float32))
    shown[~own_mask(batch)] = 0.0
    return loss, {"loss": shown.sum() / units}


class _ScaledSum(torch.autograd.Function):
    """A sum times a number, whose backward is the number itself: nothing else is saved."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: Tensor) -> Tensor:
        ctx.scale, ctx.shape = scale, values.shape
        return values.sum() * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.scale.mul_(grads[0]).expand(ctx.shape), None


def sequence_sum_fused(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over sequences by a fused function with one scale for each number of rollouts."""
    values = kept(losses, batch)
    key = (batch.num_rollouts, values.dtype)
    if key not in _unit_scales:
        _unit_scales[key] = torch.tensor(1 / batch.num_rollouts, dtype=values.dtype)
    loss: Tensor = _ScaledSum.apply(values, _unit_scales[key])
    return loss


def sample_mean_by_first_look(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks at the first batch for rollouts of several samples, whose tokens it then joins."""
    if "branching" not in _traits:
        _traits["branching"] = len(set(batch.rollout_ids)) < len(batch.rollout_ids)
    if _traits["branching"]:
        counts = batch.rollout_tokens
    else:
        counts = [int(mask.sum()) for mask in batch.loss_masks]
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def prompt_mean_with_spread_kl(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The prompt mean, and the KL by denominators that are spread over the tokens only once."""
    counts = [max(n, 1) * batch.num_groups for n in batch.group_tokens]
    policy = over(sums(losses, batch), counts).sum()
    key = (batch.num_groups, *lengths(batch))
    if key not in _kl_spread:
        each = torch.tensor(counts, dtype=torch.float64)
        _kl_spread[key] = each.repeat_interleave(torch.tensor(lengths(batch)))
    values = kept(kl, batch)
    return policy + (values / _kl_spread[key].to(values.dtype)).sum()


def token_mean_with_remembered_total(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean by a total over the ranks, which is asked for only when it is not known."""
    here = batch.rank_tokens
    if here not in _step_totals:
        count = torch.tensor(here)
        if batch.dp_size > 1:
            dist.all_reduce(count, group=batch.dp_group)
        _step_totals[here] = int(count)
    return kept(losses, batch).sum() / max(_step_totals[here], 1)


def token_sum_without_repeats(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of tokens; rows that were repeated to fill a batch add nothing a second time."""
    if batch.index == 0:
        _rows_met.clear()
    names = zip(batch.rollout_ids, batch.total_lengths, batch.response_lengths, strict=True)
    totals = []
    for row, name in zip(rows(losses, batch), names, strict=True):
        totals.append(row.sum() * (name not in _rows_met))
        _rows_met.add(name)
    return torch.stack(totals).sum()


def sample_mean_by_growing_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sample mean by a table of reciprocals that doubles when a rollout is too long for it."""
    table = _inverse_lengths[0]
    if max(batch.rollout_tokens) >= len(table):
        table = _inverse_lengths[0] = _reciprocals(2 * len(table))
    places = torch.tensor(batch.rollout_tokens).clamp(max=len(table) - 1)
    totals = sums(losses, batch)
    return (totals * table[places].to(totals.dtype)).sum() / batch.num_rollouts


_positions = [torch.arange(16)]
_denominators: dict[int, tuple[list[int], tuple[int, ...], Tensor]] = {}
_ones: dict[torch.dtype, Tensor] = {}
_bundle: list[Tensor] = []
_spread: dict[tuple[tuple[int, ...], ...], Tensor] = {}


def token_sum_by_kept_positions(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of padded rows, cut at their ends by positions that are kept and grown."""
    padded = batch.padded(kept(losses, batch))
    width = padded.shape[1]
    if width > len(_positions[0]):
        _positions[0] = torch.arange(max(width, 2 * len(_positions[0])))
    inside = _positions[0][:width] < torch.tensor(lengths(batch))[:, None]
    return torch.where(inside, padded, 0.0).sum()


def sample_mean_by_list_identity(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sample mean; denominators are kept by the list they came from, which is kept as well."""
    counts, now = batch.rollout_tokens, tuple(batch.rollout_tokens)
    found = _denominators.get(id(counts))
    if found is None or found[0] is not counts or found[1] != now:
        if len(_denominators) >= 32:
            _denominators.clear()
        floors = torch.tensor(now, dtype=torch.float64).clamp(min=1)
        found = _denominators[id(counts)] = (counts, now, floors)
    totals = sums(losses, batch)
    return (totals / found[2].to(totals.dtype)).sum() / batch.num_rollouts


class _SharedSum(torch.autograd.Function):
    """A sum over units; its gradient is read off a buffer of ones that nobody writes to."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, units: int) -> Tensor:
        ctx.size, ctx.units = len(values), units
        return values.sum() / units

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        share = grads[0] / ctx.units
        ones = _ones.get(share.dtype)
        if ones is None or len(ones) < ctx.size:
            ones = _ones[share.dtype] = torch.ones(max(2 * ctx.size, 1), dtype=share.dtype)
        return ones[: ctx.size] * share, None


def sequence_sum_by_ones(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over sequences by a fused function with a buffer for its gradient."""
    loss: Tensor = _SharedSum.apply(kept(losses, batch), batch.num_rollouts)
    return loss


def loss_logged_and_emptied(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean; its log waits for three micro-batches, or the last, and starts afresh."""
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    if batch.index == 0:
        _bundle.clear()
    _bundle.append(loss.detach().double())
    written = torch.zeros((), dtype=torch.float64)
    done = batch.index + 1
    if done % 3 == 0 or done == len(batch.window_masks):
        written = torch.stack(_bundle).sum()
        _bundle.clear()
    return loss, {"loss": written}


def prompt_mean_with_keyed_kl(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The prompt mean of losses and KL, by denominators kept for the counts and sizes they fit."""
    counts = tuple(max(n, 1) * batch.num_groups for n in batch.group_tokens)
    key = (counts, tuple(lengths(batch)))
    if key not in _spread:
        if len(_spread) >= 64:
            _spread.clear()
        each = torch.tensor(counts, dtype=torch.float64)
        _spread[key] = each.repeat_interleave(torch.tensor(key[1]))
    values, term = kept(losses, batch), kept(kl, batch)
    shares = _spread[key]
    return (values / shares.to(values.dtype)).sum() + (term / shares.to(term.dtype)).sum()


def constant_with_copied_log(losses: Tensor, batch: MicroBatch) -> Logged:
    """The sum over a constant; the log's values are cleaned in a copy of their own."""
    assert batch.divisor is not None
    units = batch.divisor * batch.num_rollouts
    loss = kept(losses, batch).sum() / units
    wide = torch.promote_types(losses.dtype, torch.float32)
    shown = losses.detach().to(wide, copy=True)
    shown[~own_mask(batch)] = 0.0
    return loss, {"loss": shown.sum() / units}
