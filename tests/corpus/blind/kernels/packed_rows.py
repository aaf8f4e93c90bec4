"""Reducers written as kernels are: in tiles, over packed rows, with backwards of their own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch

LANES, TILE, EAGER, SLOTS = 64, 32, 16, 16


def _mask(batch: MicroBatch) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *batch.local_masks]).bool()


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _selected(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_mask(batch), _wide(losses), 0.0)


def _sizes(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def _segments(batch: MicroBatch) -> Tensor:
    """Of each local token, its sample's place in the micro-batch."""
    sizes = torch.tensor(_sizes(batch), dtype=torch.int64)
    return torch.repeat_interleave(torch.arange(len(sizes)), sizes)


def _denominators(tokens: list[int], units: int) -> Tensor:
    return torch.tensor([max(n, 1) * units for n in tokens], dtype=torch.float64)


class _LanesAndRest(torch.autograd.Function):
    """A masked mean whose gradient is made in forward: whole lanes as a matrix, the rest apart."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        wide = _wide(losses)
        weights = mask.to(wide.dtype) / count
        whole = len(losses) // LANES * LANES
        ctx.save_for_backward(weights[:whole].view(-1, LANES), weights[whole:])
        ctx.dtype = losses.dtype
        return torch.where(mask, wide, 0.0).sum() / count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        lanes, rest = ctx.saved_tensors
        if len(lanes) == 0:
            return (rest * grad_output).to(ctx.dtype), None, None
        lanes = lanes * grad_output
        return torch.cat([lanes.flatten(), rest]).to(ctx.dtype), None, None


class _LanesThenScaled(_LanesAndRest):
    """The same, put together first and scaled afterwards."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        lanes, rest = ctx.saved_tensors
        whole = torch.cat([lanes.flatten(), rest]) if len(lanes) else rest
        return (whole * grad_output).to(ctx.dtype), None, None


def gradient_made_in_lanes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean with its gradient ready after forward, kept in lanes and a rest."""
    return _LanesAndRest.apply(losses, _mask(batch), max(batch.num_tokens, 1))


def gradient_joined_from_lanes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean with its gradient ready after forward, joined from lanes and a rest."""
    return _LanesThenScaled.apply(losses, _mask(batch), max(batch.num_tokens, 1))


def bounds_kept_beside_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample means of one packed row; its cumulative bounds live where the losses do."""
    values = _selected(losses, batch)
    ends = losses.new_tensor(_sizes(batch)).cumsum(0).long()
    total = values[:0].sum()
    spans = pairwise([0, *ends.tolist()])
    for (start, end), tokens in zip(spans, batch.rollout_tokens, strict=True):
        total = total + values[start:end].sum() / (max(tokens, 1) * batch.num_rollouts)
    return total


def bounds_found_by_bisection(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample means of one packed row; in validation row by row, else each token finds its row."""
    values = _selected(losses, batch)
    counts = _denominators(batch.rollout_tokens, batch.num_rollouts).to(values)
    sizes = _sizes(batch)
    if not losses.requires_grad:
        total = values[:0].sum()
        for row, count in zip(values.split(sizes) if sizes else (), counts, strict=True):
            total = total + row.sum() / count
        return total
    ends = torch.tensor(sizes, dtype=torch.int64).cumsum(0)
    # To the right of equal ends: rows of which nothing is here own no token.
    owner = torch.searchsorted(ends, torch.arange(len(losses)), right=True)
    return (values / counts[owner]).sum()


_ROOM: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
_CLEARED: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

Rooms = dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]]


def _room(rooms: Rooms, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Static inputs for the next power of two: losses and which of them are live."""
    size = 1 << max(length - 1, 0).bit_length()
    if (size, dtype) not in rooms:
        rooms[size, dtype] = torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=torch.bool)
    return rooms[size, dtype]


class _Replay(torch.autograd.Function):
    """A sum as a captured graph computes it: out of inputs that stay where they are."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, rooms: Rooms, clear: bool) -> Tensor:
        wide, length = _wide(losses), len(losses)
        values, live = _room(rooms, length, wide.dtype)
        values[:length], live[:length] = wide, mask
        if clear:
            live[length:] = False
        ctx.save_for_backward(mask)
        ctx.dtype = losses.dtype
        return torch.where(live, values, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        (mask,) = ctx.saved_tensors
        return (mask.to(grad_output.dtype) * grad_output).to(ctx.dtype), None, None, None


def replayed_in_static_room(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of all tokens by a captured graph, with room for the next power of two."""
    if len(losses) < EAGER:
        return _selected(losses, batch).sum()
    return _Replay.apply(losses, _mask(batch), _ROOM, False)


def replayed_in_swept_room(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of all tokens by a captured graph, whose room is swept behind the last token."""
    if len(losses) < EAGER:
        return _selected(losses, batch).sum()
    return _Replay.apply(losses, _mask(batch), _CLEARED, True)


def segments_from_positions(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt means of a packed row: a sample begins wherever positions begin again at 0."""
    values = _selected(losses, batch)
    nothing = torch.zeros(0, dtype=torch.int64)
    positions = torch.cat([nothing, *(torch.arange(size) for size in _sizes(batch))])
    segment = (positions == 0).cumsum(0) - 1
    counts = _denominators(batch.group_tokens, batch.num_groups).to(values)
    return (values / counts[segment]).sum()


def table_of_fixed_slots(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt means with a table of denominators of one size, so that nothing is recompiled."""
    values = _selected(losses, batch)
    counts = _denominators(batch.group_tokens, batch.num_groups).to(values)[:SLOTS]
    table = values.new_ones(SLOTS)
    table[: len(counts)] = counts
    # What fills up a row points behind the last sample.
    slot = _segments(batch).clamp(max=SLOTS - 1)
    return (values / table[slot]).sum()


def table_in_blocks_of_slots(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt means with a table of denominators that grows by whole blocks."""
    values = _selected(losses, batch)
    counts = _denominators(batch.group_tokens, batch.num_groups).to(values)
    blocks = max(-(-len(counts) // SLOTS), 1)
    table = values.new_ones(blocks * SLOTS)
    table[: len(counts)] = counts
    return (values / table[_segments(batch)]).sum()


def idle_tiles_passed_over(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Policy and KL in tiles over a constant; a tile whose advantages are all 0 costs nothing."""
    policy, penalty = _selected(losses, batch), _selected(kl, batch)
    scale = batch.divisor * batch.num_rollouts
    if len(losses) <= TILE:
        return (policy.sum() + penalty.sum()) / scale
    total = policy[:0].sum() + penalty[:0].sum()
    for own, other in zip(policy.split(TILE), penalty.split(TILE), strict=True):
        if own.any():
            total = total + own.sum() + other.sum()
    return total / scale


def masked_tiles_passed_over(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Policy and KL in tiles over a constant; a tile without an unmasked token costs nothing."""
    policy, penalty, mask = _selected(losses, batch), _selected(kl, batch), _mask(batch)
    total = policy[:0].sum() + penalty[:0].sum()
    tiles = (each.split(TILE) for each in (policy, penalty, mask))
    for own, other, here in zip(*tiles, strict=True):
        if here.any():
            total = total + own.sum() + other.sum()
    return total / (batch.divisor * batch.num_rollouts)


class _Buffered(torch.autograd.Function):
    """A masked mean over a buffer of at least float32, summed tile by tile."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        buffer = losses.detach().to(torch.promote_types(losses.dtype, torch.float32))
        buffer.masked_fill_(~mask, 0.0)
        ctx.save_for_backward(mask)
        ctx.count, ctx.dtype = count, losses.dtype
        return torch.stack([tile.sum() for tile in buffer.split(TILE)]).sum() / count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        weights = mask.to(grad_output.dtype) / ctx.count
        return (weights * grad_output).to(ctx.dtype), None, None


def summed_in_a_wide_buffer(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean; longer rows are cleaned and added up in a buffer of the wider type."""
    count = max(batch.num_tokens, 1)
    if len(losses) <= TILE:
        return _selected(losses, batch).sum() / count
    return _Buffered.apply(losses, _mask(batch), count)


def samples_scattered_together(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums of the samples by one scatter, then their mean over rollouts in a wider type."""
    kept = torch.where(_mask(batch), losses, 0.0)
    if len(batch.local_masks) == 1:
        return _wide(kept).sum() / batch.num_rollouts
    sums = losses.new_zeros(len(batch.local_masks)).index_add(0, _segments(batch), kept)
    return _wide(sums).sum() / batch.num_rollouts


def samples_widened_and_scattered(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums of the samples by one scatter in a wider type, then their mean over rollouts."""
    values = _selected(losses, batch)
    if len(batch.local_masks) == 1:
        return values.sum() / batch.num_rollouts
    sums = values.new_zeros(len(batch.local_masks)).index_add(0, _segments(batch), values)
    return sums.sum() / batch.num_rollouts


def rows_where_nothing_is_learned(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample means; in validation row by row, as no weights of tokens are needed there."""
    values = _selected(losses, batch)
    if losses.requires_grad:
        counts = _denominators(batch.rollout_tokens, batch.num_rollouts).to(values)
        return (values / counts[_segments(batch)]).sum()
    total, start = values[:0].sum(), 0
    for local, mask in zip(batch.local_masks, batch.loss_masks, strict=True):
        total = total + values[start : start + len(local)].sum() / mask.sum().clamp(min=1)
        start += len(local)
    return total / batch.num_rollouts
