"""Fused and chunked kernels, segment sums, and the number formats they work in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, sums

LONG = 512
TILE = 64
FUSED_FROM = 256
PLANS = 64

_plans: dict[tuple[int, int], Tensor] = {}
_plans_by_lengths: dict[tuple[int, ...], Tensor] = {}


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _owners(sizes: list[int]) -> Tensor:
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


class _FusedMean(torch.autograd.Function):
    """Long inputs keep their gradient from forward on, short ones only the mask."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        wide = losses.to(_wide(losses.dtype))
        ctx.count, ctx.dtype = count, losses.dtype
        ctx.stored = len(losses) > LONG
        weights = (mask.to(wide.dtype) / count).to(losses.dtype)
        ctx.save_for_backward(weights if ctx.stored else mask)
        return torch.where(mask, wide, 0.0).sum() / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (saved,) = ctx.saved_tensors
        if ctx.stored:
            return saved, None, None
        return torch.where(saved, grad / ctx.count, 0.0).to(ctx.dtype), None, None


def gradient_laid_by_in_forward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean as one fused function, which has its gradient ready where inputs are long."""
    return _FusedMean.apply(losses, own_mask(batch), max(batch.num_tokens, 1))


def penalty_in_tiles_and_a_tail(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The policy's sum, and the penalty's in whole tiles and the tail behind them."""
    penalty = kept(kl, batch)
    tail = len(penalty) % TILE
    tiles = penalty[: len(penalty) - tail].view(-1, TILE).sum(dim=1)
    total = kept(losses, batch).sum() + tiles.sum() + penalty[-tail:].sum()
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def starts_by_triangular_product(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where samples start is a product with a triangle of ones; tokens find theirs by search."""
    values = kept(losses, batch)
    sizes = torch.tensor(lengths(batch), dtype=torch.float32)
    below = torch.ones(len(sizes), len(sizes)).tril(-1)
    starts = (below @ sizes).long()
    owner = torch.searchsorted(starts, torch.arange(len(values)), right=True) - 1
    totals = values.new_zeros(len(sizes)).index_add(0, owner, values)
    return over(totals, batch.group_tokens).sum() / max(batch.num_groups, 1)


def owners_from_a_plan(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Which sample a token belongs to is planned once for each shape of a micro-batch."""
    shape = len(losses), len(batch.local_masks)
    if shape not in _plans:
        _plans[shape] = _owners(lengths(batch))
    values = kept(losses, batch)
    totals = values.new_zeros(shape[1]).index_add(0, _plans[shape], values)
    return over(totals, batch.rollout_tokens).sum() / max(batch.num_rollouts, 1)


def reciprocals_above_the_resolution(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens are weighted by reciprocals, which stay above what the losses' format resolves."""
    values = kept(losses, batch)
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1)
    weights = counts.reciprocal().clamp(min=torch.finfo(losses.dtype).eps).to(values.dtype)
    weights = weights.repeat_interleave(torch.tensor(lengths(batch)))
    return (values * weights).sum() / max(batch.num_rollouts, 1)


class _WorkspaceSum(torch.autograd.Function):
    """Masks in place in a workspace, so that no second temporary is needed."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.dtype = losses.dtype
        workspace = losses.clone() if losses.dtype == torch.float64 else losses.float()
        return workspace.masked_fill_(~mask, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, grad, 0.0).to(ctx.dtype), None


def masked_in_a_workspace(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Short inputs are summed as they are, longer ones in a workspace of at least float32."""
    if len(losses) < FUSED_FROM:
        return kept(losses, batch).sum()
    return _WorkspaceSum.apply(losses, own_mask(batch))


def _slots(batch: MicroBatch) -> Tensor:
    places = {name: i for i, name in enumerate(dict.fromkeys(batch.rollout_ids))}
    return torch.tensor([places[name] for name in batch.rollout_ids])


def one_slot_per_rollout(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Every rollout at hand has a slot for its total, and the slots are averaged."""
    totals = sums(losses, batch)
    slots = torch.zeros_like(totals).scatter(0, _slots(batch), totals)
    return slots.sum() / max(batch.num_rollouts, 1)


def between_two_running_totals(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A sample's sum is the running total at its last token less the one before its first."""
    values = kept(losses, batch)
    if not len(values):
        return values.sum()
    sizes = torch.tensor(lengths(batch))
    ends = sizes.cumsum(0)
    starts = ends - sizes
    running = values.cumsum(0)
    before = torch.where(starts > 0, running[starts - 1], 0.0)
    totals = running[ends - 1] - before
    return over(totals, batch.group_tokens).sum() / max(batch.num_groups, 1)


class _ChunkedMean(torch.autograd.Function):
    """Adds up chunk after chunk; the weights are ready in forward and scaled in backward."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        total = losses.new_zeros((), dtype=_wide(losses.dtype))
        for chunk, own in zip(losses.split(LONG), mask.split(LONG), strict=True):
            total += torch.where(own, chunk.to(total.dtype), 0.0).sum()
        ctx.save_for_backward(mask.to(total.dtype) / count)
        ctx.dtype = losses.dtype
        return total / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        return (weights * grad).to(ctx.dtype), None, None


def chunks_and_their_gradients(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean chunk by chunk, with weights that wait for the gradient of the loss."""
    return _ChunkedMean.apply(losses, own_mask(batch), max(batch.num_tokens, 1))


def penalty_in_whole_tiles_and_a_rest(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The policy's sum, and the penalty's in whole tiles and in the rest, if there is one."""
    penalty = kept(kl, batch)
    whole = len(penalty) - len(penalty) % TILE
    tiles = penalty[:whole].view(-1, TILE).sum(dim=1)
    total = kept(losses, batch).sum() + tiles.sum() + penalty[whole:].sum()
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def starts_outside_autocast(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where samples start is a product with a triangle of ones, in float64 and not autocast."""
    values = kept(losses, batch)
    with torch.autocast(losses.device.type, enabled=False):
        sizes = torch.tensor(lengths(batch), dtype=torch.float64)
        starts = (sizes.new_ones(len(sizes), len(sizes)).tril(-1) @ sizes).long()
    owner = torch.searchsorted(starts, torch.arange(len(values)), right=True) - 1
    totals = values.new_zeros(len(sizes)).index_add(0, owner, values)
    return over(totals, batch.group_tokens).sum() / max(batch.num_groups, 1)


def owners_planned_by_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Which sample a token belongs to is planned once for each list of lengths."""
    sizes = tuple(lengths(batch))
    if sizes not in _plans_by_lengths:
        if len(_plans_by_lengths) >= PLANS:
            _plans_by_lengths.clear()
        _plans_by_lengths[sizes] = _owners(list(sizes))
    values = kept(losses, batch)
    totals = values.new_zeros(len(sizes)).index_add(0, _plans_by_lengths[sizes], values)
    return over(totals, batch.rollout_tokens).sum() / max(batch.num_rollouts, 1)


def slots_added_up(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Samples of a rollout are added into its slot, and the slots are averaged and logged."""
    totals = sums(losses, batch)
    slots = torch.zeros_like(totals).scatter_add(0, _slots(batch), totals)
    loss = slots.sum() / max(batch.num_rollouts, 1)
    return loss, {"loss": loss.detach()}


class _CopiedSum(torch.autograd.Function):
    """Masks in place in a copy, whatever the format of the losses."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.dtype = losses.dtype
        workspace = losses.to(_wide(losses.dtype), copy=True)
        return workspace.masked_fill_(~mask, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, grad, 0.0).to(ctx.dtype), None


def workspace_of_its_own(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Short inputs are summed as they are, longer ones in a copy of at least float32."""
    if len(losses) < FUSED_FROM:
        return kept(losses, batch).sum()
    return _CopiedSum.apply(losses, own_mask(batch))
