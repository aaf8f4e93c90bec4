"""Fused, chunked and blocked sums, and the formats that they count and store in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch

CHUNK = 256
TILE = 64
GRID_TILE = 128
MAX_TURNS = 16
HALF_SCALE = 1024.0

_partials: dict[torch.dtype, Tensor] = {}
_workspace: dict[torch.dtype, Tensor] = {}


def _sizes(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def _keep(batch: MicroBatch) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *batch.local_masks]).bool()


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_keep(batch), _wide(losses), 0.0)


def _row_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = _kept(losses, batch)
    owner = torch.arange(len(batch.local_masks)).repeat_interleave(_long(_sizes(batch)))
    return values.new_zeros(len(batch.local_masks)).index_add(0, owner, values)


def _long(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def _token_weights(batch: MicroBatch, counts: list[int], units: int) -> Tensor:
    """Of every local token, masked ones too, in float64."""
    weights = 1 / (_long(counts).clamp(min=1).double() * max(units, 1))
    return weights.repeat_interleave(_long(_sizes(batch)))


class _WeightedInChunks(torch.autograd.Function):
    """The gradient is made in the forward pass, while a chunk is at hand."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        total, gradient = values.new_zeros(()), torch.empty_like(values)
        for start in range(0, len(values), CHUNK):
            piece = slice(start, start + CHUNK)
            total += (values[piece] * weights[piece]).sum()
            gradient[piece] = weights[piece]
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


def gradient_made_while_chunking(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Take the fused kernel, with its gradient ready after forward, once there are chunks."""
    values = _kept(losses, batch)
    weights = _token_weights(batch, batch.rollout_tokens, batch.num_rollouts).to(values)
    if len(values) <= CHUNK:
        return (values * weights).sum()
    return _WeightedInChunks.apply(values, weights)


def owners_from_marked_starts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mark where samples start and number the tokens' samples by a cumulative sum."""
    values = _kept(losses, batch)
    starts = _long([0, *_sizes(batch)]).cumsum(0)[:-1]
    marks = torch.zeros(len(values), dtype=torch.int64)
    marks[starts[starts < len(values)]] = 1
    owner = marks.cumsum(0) - 1
    counts = _long(batch.rollout_tokens).clamp(min=1).double() * max(batch.num_rollouts, 1)
    return (values / counts.to(values)[owner]).sum()


def prompt_table_in_one_float_tensor(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Ship prompt ids and token counts to the segment sum in one float32 tensor."""
    table = torch.tensor([batch.group_ids, batch.group_tokens], dtype=torch.float32)
    prompts, slots = table[0].unique(return_inverse=True)
    totals = _row_sums(losses, batch)
    counts = torch.ones(len(prompts))
    counts[slots] = table[1].clamp(min=1)
    per_prompt = totals.new_zeros(len(prompts)).index_add(0, slots, totals)
    return (per_prompt / counts.to(totals)).sum() / max(batch.num_groups, 1)


def halved_until_one_is_left(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Add the upper half of the rows to the lower one, and an odd row at the end."""
    assert batch.divisor is not None
    values = _row_sums(losses, batch)
    odd = values.new_zeros(())
    while len(values) > 1:
        half = len(values) // 2
        if len(values) % 2:
            odd = values[-1]
        values = values[:half] + values[half : 2 * half]
    return (values.sum() + odd) / (batch.divisor * max(batch.num_rollouts, 1))


class _TwoStageSum(torch.autograd.Function):
    """One partial sum a tile, then the sum of the partial sums; the buffer is allocated once."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.size = len(values)
        tiles = values.split(GRID_TILE)
        buffer = _partials.get(values.dtype)
        if buffer is None or len(buffer) < len(tiles):
            buffer = _partials[values.dtype] = values.new_zeros(len(tiles))
        for slot, tile in enumerate(tiles):
            buffer[slot] = tile.sum()
        return buffer.sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.expand(ctx.size)


def partial_sums_in_a_grown_buffer(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Weigh every token, then add up in two stages through a buffer that only ever grows."""
    values = _kept(losses, batch)
    weights = _token_weights(batch, batch.group_tokens, batch.num_groups).to(values)
    return _TwoStageSum.apply(values * weights)


def turns_from_a_span_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Read each response by its table of turns, begin and end, of a shape that never changes."""
    values = _wide(losses)
    total = values[:0].sum()
    for row, mask in zip(values.split(_sizes(batch)), batch.local_masks, strict=True):
        edges = torch.diff(mask, prepend=mask.new_zeros(1), append=mask.new_zeros(1))
        begins, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
        table = mask.new_zeros(MAX_TURNS, 2)
        table[: len(begins)] = torch.stack([begins, ends], 1)[:MAX_TURNS]
        for begin, end in table.tolist():
            total = total + row[begin:end].sum()
    return total


def idle_tiles_are_not_launched(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Add up policy and KL tile by tile, and launch nothing for tiles without a policy loss."""
    policy, drift = _kept(losses, batch), _kept(kl, batch)
    tiles = list(zip(policy.split(TILE), drift.split(TILE), strict=True))
    if len(tiles) > 1:  # a single tile costs less than asking
        tiles = [(first, second) for first, second in tiles if bool(first.detach().any())]
    total = policy[:0].sum() + drift[:0].sum()
    for first, second in tiles:
        total = total + first.sum() + second.sum()
    return total / max(batch.num_rollouts, 1)


def tile_sums_stored_scaled(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Store the tile sums in float16 where the losses are, scaled so that none underflows."""
    values = _kept(losses, batch)
    half = losses.dtype == torch.float16
    scale = HALF_SCALE if half else 1.0
    stored = torch.stack([tile.sum() * scale for tile in values.split(TILE)])
    if half:
        stored = stored.half()
    return stored.to(values.dtype).sum() / scale / max(batch.num_tokens, 1)


def step_count_in_the_compute_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Add up the rollouts' token counts in the dtype that the kernel computes in."""
    values = _kept(losses, batch)
    device = losses.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else values.dtype
    count = torch.zeros((), dtype=dtype)
    for tokens in batch.step_rollout_tokens:
        count += tokens
    return values.sum() / count.clamp(min=1).to(values.dtype)


class _SummedInChunks(torch.autograd.Function):
    """The gradient is made in the forward pass where one is wanted."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, keep: Tensor) -> Tensor:
        total = values.new_zeros(())
        for start in range(0, len(values), CHUNK):
            piece = slice(start, start + CHUNK)
            total += values[piece][keep[piece]].sum()
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(keep.to(values.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_output, None


def chunked_with_its_own_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sum in chunks through a function of its own, of which the trainer may scale the result."""
    keep, values = _keep(batch), _wide(losses)
    if len(values) <= CHUNK:
        return torch.where(keep, values, 0.0).sum()
    return _SummedInChunks.apply(values, keep)


def owners_from_counted_starts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Count how many samples start at each token; their cumulative sum numbers the samples."""
    values = _kept(losses, batch)
    starts = _long([0, *_sizes(batch)]).cumsum(0)[:-1]
    marks = torch.zeros(len(values) + 1, dtype=torch.int64)
    marks.index_add_(0, starts, torch.ones_like(starts))
    owner = marks.cumsum(0)[:-1] - 1
    counts = _long(batch.rollout_tokens).clamp(min=1).double() * max(batch.num_rollouts, 1)
    return (values / counts.to(values)[owner]).sum()


def prompt_table_in_integers(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Number the prompts at hand by their ids in int64 and add rows up by that number."""
    prompts, slots = _long(batch.group_ids).unique(return_inverse=True)
    totals = _row_sums(losses, batch)
    counts = torch.ones(len(prompts), dtype=torch.int64)
    counts[slots] = _long(batch.group_tokens).clamp(min=1)
    per_prompt = totals.new_zeros(len(prompts)).index_add(0, slots, totals)
    return (per_prompt / counts.double().to(totals)).sum() / max(batch.num_groups, 1)


def halved_with_a_zero_for_the_odd(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Add the upper half of the rows to the lower one, evened out by a zero at every level."""
    assert batch.divisor is not None
    values = _row_sums(losses, batch)
    while len(values) > 1:
        if len(values) % 2:
            values = torch.cat([values, values.new_zeros(1)])
        half = len(values) // 2
        values = values[:half] + values[half:]
    return values.sum() / (batch.divisor * max(batch.num_rollouts, 1))


def masked_tiles_are_not_launched(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Add up policy and KL tile by tile, and launch nothing for tiles that are masked."""
    keep = _keep(batch)
    policy, drift = _kept(losses, batch), _kept(kl, batch)
    total = policy[:0].sum() + drift[:0].sum()
    for start in range(0, len(keep), TILE):
        tile = slice(start, start + TILE)
        if bool(keep[tile].any()):
            total = total + policy[tile].sum() + drift[tile].sum()
    return total / max(batch.num_tokens, 1)


class _FilledSlots(torch.autograd.Function):
    """One partial sum a tile in a shared workspace, of which only this call's slots are read."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.size = len(values)
        tiles = values.split(GRID_TILE)
        buffer = _workspace.get(values.dtype)
        if buffer is None or len(buffer) < len(tiles):
            buffer = _workspace[values.dtype] = values.new_empty(2 * len(tiles))
        for slot, tile in enumerate(tiles):
            buffer[slot] = tile.sum()
        return buffer[: len(tiles)].sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.expand(ctx.size)


def partial_sums_in_a_shared_workspace(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add up in two stages through a workspace that is kept, and log the loss as it is."""
    total = _FilledSlots.apply(_kept(losses, batch))
    loss = total / max(batch.num_rollouts, 1)
    return loss, {"loss": loss.detach().clone()}
