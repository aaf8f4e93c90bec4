"""Losses added up in tiles, as fused kernels do it, with what is packed into fixed shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch

TILE = 256
CHUNKS = 32
ROWS = 4
WARM_UP = 3


def _mask(batch: MicroBatch) -> Tensor:
    """One mask over all local tokens, also where there is no sample."""
    return torch.cat([torch.zeros(0, dtype=torch.int64), *batch.local_masks]).bool()


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.element_size() < 4 else values


def _visible(values: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_mask(batch), _wide(values), 0.0)


def _lengths(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def _row_sums(values: Tensor, batch: MicroBatch) -> Tensor:
    """One sum a sample; of no samples an empty tensor that still belongs to the graph."""
    visible = _visible(values, batch)
    rows = visible.split(_lengths(batch)) if batch.local_masks else ()
    return torch.cat([visible[:0], *[row.sum().view(1) for row in rows]])


def _over(sums: Tensor, counts: list[int], units: int) -> Tensor:
    floored = [max(count, 1) * max(units, 1) for count in counts]
    return (sums / torch.tensor(floored, dtype=torch.float64).to(sums)).sum()


def _gapless(mask: Tensor, lengths: list[int]) -> list[slice]:
    """Where the unmasked tokens of each sample stand, of samples that have them in one run."""
    spans, start = [], 0
    for length in lengths:
        places = mask[start : start + length].nonzero().flatten().tolist()
        if places and places[-1] - places[0] == len(places) - 1:
            spans.append(slice(start + places[0], start + places[-1] + 1))
        start += length
    return spans


class _SpanSum(torch.autograd.Function):
    """Adds up tokens; their gradient is made in forward, and runs of tokens are scaled whole."""

    @staticmethod
    def forward(
        ctx: Any, losses: Tensor, mask: Tensor, share: Tensor, spans: list[slice]
    ) -> Tensor:
        ctx.save_for_backward(torch.where(mask, share, 0.0))
        ctx.dtype, ctx.spans = losses.dtype, spans
        return (torch.where(mask, _wide(losses), 0.0) * share).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        (stored,) = ctx.saved_tensors
        gradient = stored.clone()
        for span in ctx.spans:
            gradient[span] = stored[span] * grad_output
        return gradient.to(ctx.dtype), None, None, None


def gradients_kept_by_span(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Makes the gradient in forward and lets backward scale it, one span of tokens at a time."""
    counts = [max(n, 1) * max(batch.num_groups, 1) for n in batch.group_tokens]
    shares = 1 / torch.tensor(counts, dtype=torch.float64)
    lengths = _lengths(batch)
    share = shares.repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
    mask = _mask(batch)
    return _SpanSum.apply(losses, mask, share.to(_wide(losses)), _gapless(mask, lengths))


def masked_tiles_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps a table of one byte a tile and adds up only those tiles that hold a token."""
    values = _visible(losses, batch)
    table = [int(tile.sum(dtype=torch.uint8)) for tile in _mask(batch).split(TILE)]
    total = values[:0].sum()
    for tile, held in zip(values.split(TILE), table, strict=True):
        if held:
            total = total + tile.sum()
    assert batch.divisor is not None
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def chunks_averaged_and_scaled_back(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages the sums of the chunks of a long micro-batch, then multiplies by their number."""
    values = _visible(losses, batch)
    chunks = 1 if len(values) <= TILE else CHUNKS
    sums = torch.stack([chunk.sum() for chunk in values.chunk(chunks)])
    return sums.mean() * chunks / max(batch.num_rollouts, 1)


def counts_in_the_metadata_tensor(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Hands ids and counts to the kernel in one tensor, where it looks up each rollout's count."""
    sums = _row_sums(losses, batch)
    table = torch.tensor([batch.rollout_ids, batch.rollout_tokens], dtype=torch.float32)
    names, which = table[0].unique(return_inverse=True)
    counts = torch.zeros(len(names)).scatter_reduce(0, which, table[1], "amax")
    return (sums / counts[which].clamp(min=1).to(sums)).sum() / max(batch.num_rollouts, 1)


Shape = tuple[tuple[int, ...], torch.dtype]
_calls: dict[Shape, int] = {}
_captured: dict[Shape, Callable[[Tensor], Tensor]] = {}


def _mean(values: Tensor, count: int) -> Tensor:
    return values.sum() / count


def replayed_once_warm(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Runs eagerly while a shape is new and replays what was captured for it afterwards."""
    shape = (tuple(_lengths(batch)), losses.dtype)
    eager = partial(_mean, count=max(batch.num_tokens, 1))
    _calls[shape] = _calls.get(shape, 0) + 1
    if _calls[shape] == WARM_UP:
        _captured[shape] = eager
    return _captured.get(shape, eager)(_visible(losses, batch))


def penalty_by_blocks_of_rows(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds up the penalty in blocks of four rows, as many as one program of the kernel takes."""
    policy = _over(_row_sums(losses, batch), batch.rollout_tokens, batch.num_rollouts)
    counts = torch.tensor([max(n, 1) for n in batch.rollout_tokens], dtype=torch.float64)
    means = _row_sums(kl, batch) / counts.to(policy)
    blocks = means.unfold(0, ROWS, ROWS) if len(means) > ROWS else means
    return policy + blocks.sum() / max(batch.num_rollouts, 1)


def metric_added_up_beside_the_loss(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, float]]:
    """Returns the sum and logs a metric that the loop over rows adds up beside it."""
    sums = _row_sums(losses, batch)
    metric = losses.new_zeros(())
    for row in sums.detach():
        metric += row
    return sums.sum(), {"loss": float(metric)}


def tiles_launched_in_lockstep(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out a tile when no rank of the sequence has a token in it, so all launch alike."""
    values = _visible(losses, batch)
    total = values[:0].sum()
    for tile, seen in zip(values.split(TILE), _mask(batch).split(TILE), strict=True):
        live = seen.sum()
        if batch.cp_size > 1:
            dist.all_reduce(live, group=batch.cp_group)
        if live:
            total = total + tile.sum()
    return total / max(batch.num_tokens, 1)


def longest_packed_first(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Packs the longest samples first and brings their sums back into the order of the batch."""
    lengths = _lengths(batch)
    by_length = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    order = torch.tensor(by_length, dtype=torch.int64)
    packed = _row_sums(losses, batch)[order]
    return _over(packed[order], batch.group_tokens, batch.num_groups)


class _TiledMean(torch.autograd.Function):
    """A mean in tiles; the gradient is made in forward and scaled by what backward is given."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        values, ctx.dtype = torch.where(mask, _wide(losses), 0.0), losses.dtype
        gradient = torch.empty_like(values)
        total = values.new_zeros(())
        for start in range(0, len(values), TILE):
            tile = slice(start, start + TILE)
            total += values[tile].sum()
            gradient[tile] = mask[tile].to(values) / count
        ctx.save_for_backward(gradient)
        return total / count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return (gradient * grad_output).to(ctx.dtype), None, None


def gradients_kept_by_tile(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Makes the gradient tile by tile in forward and scales all of it in backward."""
    return _TiledMean.apply(losses, _mask(batch), max(batch.num_tokens, 1))


def tiles_launched_as_often_as_the_longest(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Agrees on the number of tiles before the ranks of a sequence go through them together."""
    values, seen = _visible(losses, batch), _mask(batch)
    tiles = torch.tensor(len(values.split(TILE)))
    if batch.cp_size > 1:
        dist.all_reduce(tiles, op=dist.ReduceOp.MAX, group=batch.cp_group)
    total = values[:0].sum()
    for number in range(int(tiles)):
        tile = slice(number * TILE, (number + 1) * TILE)
        live = seen[tile].sum()
        if batch.cp_size > 1:
            dist.all_reduce(live, group=batch.cp_group)
        if live:
            total = total + values[tile].sum()
    return total / max(batch.num_rollouts, 1)


def chunks_added_in_a_wide_total(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, float]]:
    """Adds up however many chunks there are, and logs a total that is as wide as the loss."""
    values = _visible(losses, batch)
    sums = [chunk.sum() for chunk in values.chunk(1 if len(values) <= TILE else CHUNKS)]
    metric = torch.zeros((), dtype=torch.float64)
    for part in sums:
        metric += part.detach()
    return torch.stack(sums).sum(), {"loss": float(metric)}


def longest_packed_first_and_put_back(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Packs the longest samples first and undoes that with the inverse of the order."""
    lengths = _lengths(batch)
    by_length = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    order = torch.tensor(by_length, dtype=torch.int64)
    packed = _row_sums(losses, batch)[order]
    return _over(packed[order.argsort()], batch.group_tokens, batch.num_groups)


def penalty_by_filled_blocks_of_rows(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Fills the last block of four rows with zeros before the penalty is added up."""
    policy, penalty = _row_sums(losses, batch), _row_sums(kl, batch)
    filled = torch.nn.functional.pad(penalty, (0, -len(penalty) % ROWS))
    blocks = filled.view(-1, ROWS).sum(dim=1)
    assert batch.divisor is not None
    return (policy.sum() + blocks.sum()) / (batch.divisor * max(batch.num_rollouts, 1))


@lru_cache(maxsize=64)
def _row_of_each_token(lengths: tuple[int, ...]) -> Tensor:
    counts = torch.tensor(lengths, dtype=torch.int64)
    return torch.arange(len(lengths)).repeat_interleave(counts)


def rows_cached_by_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps for each shape only which row a token is in, and reads the counts at every call."""
    table = torch.tensor([batch.rollout_ids, batch.rollout_tokens], dtype=torch.int64)
    names, which = table[0].unique(return_inverse=True)
    counts = torch.zeros(len(names), dtype=torch.int64).scatter_reduce(0, which, table[1], "amax")
    units = counts[which].clamp(min=1) * max(batch.num_rollouts, 1)
    values = _visible(losses, batch)
    return (values / units[_row_of_each_token(tuple(_lengths(batch)))].to(values)).sum()
