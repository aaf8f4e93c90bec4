"""Losses as kernels add them up: tiles and chunks, scatters and tables, wide and narrow numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, sums

GRID_TILE = 64
BYTE_TILE = 256
HALF_TILE = 128
CHUNK = 4
TABLES = 64

_tables: dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor] = {}


def starts_marked_with_ones(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Marks where samples start and numbers the tokens by a cumulative sum over the marks."""
    if not len(losses):
        return losses.sum()
    sizes = torch.tensor(lengths(batch))
    marks = torch.zeros(len(losses) + 1, dtype=torch.int64)
    marks[sizes.cumsum(0) - sizes] = 1
    owner = marks.cumsum(0)[:-1] - 1
    values = kept(losses, batch)
    counts = torch.tensor([max(n, 1) for n in batch.group_tokens], dtype=torch.float64)[owner]
    return (values / counts.to(values)).sum() / max(batch.num_groups, 1)


class _GridScaled(torch.autograd.Function):
    """A weighted sum whose gradient is made in forward and scaled tile by tile in backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        gradient = ctx.saved_tensors[0].clone()
        for tile in range(max(len(gradient) // GRID_TILE, 1)):
            gradient[tile * GRID_TILE : (tile + 1) * GRID_TILE] *= grad_output
        return gradient, None


def fused_sum_scaled_by_a_grid(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Makes the gradient with the loss, and lets a grid of tiles multiply it in backward."""
    if not len(losses):
        return losses.sum()
    assert batch.divisor is not None
    values = kept(losses, batch)
    unit = batch.divisor * max(batch.num_rollouts, 1)
    return _GridScaled.apply(values, torch.full_like(values, 1 / unit))


def rollouts_named_in_a_float_column(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds samples up by rollout, whose names come from the float table of the batch's columns."""
    if not len(losses):
        return losses.sum()
    columns = torch.tensor([batch.rollout_ids, batch.rollout_tokens], dtype=torch.float32)
    names, place = columns[0].unique(return_inverse=True)
    values = sums(losses, batch)
    totals = values.new_zeros(len(names)).index_add(0, place, values)
    tokens = torch.zeros(len(names), dtype=torch.int64)
    tokens = tokens.scatter_reduce(0, place, torch.tensor(batch.rollout_tokens), "amax")
    return over(totals, tokens.tolist()).sum() / max(batch.num_rollouts, 1)


def weights_from_a_table_of_shapes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks weights up in a table that is filled once for every shape of a micro-batch."""
    if not len(losses):
        return losses.sum()
    shape = (tuple(lengths(batch)), tuple(batch.rollout_tokens))
    if len(_tables) > TABLES:
        _tables.clear()
    if shape not in _tables:
        counts = [max(n, 1) * max(batch.num_rollouts, 1) for n in batch.rollout_tokens]
        weights = 1 / torch.tensor(counts, dtype=torch.float64)
        _tables[shape] = weights.repeat_interleave(torch.tensor(shape[0]))
    values = kept(losses, batch)
    return (values * _tables[shape].to(values)).sum()


def offsets_by_a_triangular_product(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the samples' offsets as a product with a triangle of ones, the way a matrix unit does
    prefix sums, and divides every token by its group's count."""
    if not len(losses):
        return losses.sum()
    sizes = torch.tensor(lengths(batch), dtype=torch.float32)
    ends = (torch.ones(len(sizes), len(sizes)).tril() @ sizes).long()
    owner = torch.bucketize(torch.arange(len(losses)), ends[:-1], right=True)
    values = kept(losses, batch)
    counts = torch.tensor([max(n, 1) for n in batch.group_tokens], dtype=torch.float64)[owner]
    return (values / counts.to(values)).sum() / max(batch.num_groups, 1)


def tiles_without_tokens_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the mask of each tile in a byte and adds up the tiles that have tokens."""
    if not len(losses):
        return losses.sum()
    values, mask = kept(losses, batch), own_mask(batch).to(torch.uint8)
    total = values[:0].sum()
    for tile, bits in zip(values.split(BYTE_TILE), mask.split(BYTE_TILE), strict=True):
        if bits.sum(dtype=torch.uint8):
            total = total + tile.sum()
    return total / max(batch.num_tokens, 1)


def log_divided_in_the_spent_buffer(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Masks only where something is masked, and reuses the buffer for the log once it is summed."""
    wide = losses.float() if losses.element_size() < 4 else losses
    mask = own_mask(batch) if batch.local_masks else torch.ones(0, dtype=torch.bool)
    values = wide if mask.all() else torch.where(mask, wide, 0.0)
    rollouts = max(batch.num_rollouts, 1)
    loss = values.sum() / rollouts
    return loss, {"loss": values.detach().div_(rollouts).sum()}


def scattered_where_the_range_allows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Scatters losses into one sum a sample, widened first where their format could overflow."""
    if not len(losses):
        return losses.sum()
    wide = losses.float() if torch.finfo(losses.dtype).max < 1e6 else losses
    values = torch.where(own_mask(batch), wide, 0.0)
    sizes = torch.tensor(lengths(batch))
    owner = torch.arange(len(sizes)).repeat_interleave(sizes)
    per_sample = values.new_zeros(len(sizes)).index_add(0, owner, values)
    return per_sample.double().sum()


def _chunks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of every few samples."""
    sizes = lengths(batch)
    cuts = [sum(sizes[i : i + CHUNK]) for i in range(0, len(sizes), CHUNK)]
    return torch.stack([chunk.sum() for chunk in kept(losses, batch).split(cuts)])


def kl_beside_the_chunked_loss(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Goes through a few samples at a time and adds what the kernel gives for loss and KL."""
    if not batch.local_masks:
        return losses.sum() + kl.sum()
    policy, divergence = _chunks(losses, batch).sum(), _chunks(kl, batch).mean()
    return (policy + divergence) / max(batch.num_tokens, 1)


def starts_counted_into_marks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts how many samples start at each token and numbers the tokens by a running total."""
    if not len(losses):
        return losses.sum()
    sizes = torch.tensor(lengths(batch))
    marks = torch.zeros(len(losses) + 1, dtype=torch.int64)
    marks.index_add_(0, sizes.cumsum(0) - sizes, torch.ones_like(sizes))
    owner = marks.cumsum(0)[:-1] - 1
    values = kept(losses, batch)
    counts = torch.tensor([max(n, 1) for n in batch.group_tokens], dtype=torch.float64)[owner]
    return (values / counts.to(values)).sum() / max(batch.num_groups, 1)


class _TileScaled(torch.autograd.Function):
    """A weighted sum whose gradient is scaled in tiles, of which the last may be short."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        gradient = ctx.saved_tensors[0].clone()
        for tile in gradient.split(GRID_TILE):
            tile.mul_(grad_output)
        return gradient, None


def fused_sum_scaled_in_tiles(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Makes the gradient with the loss, and multiplies it tile by tile in backward."""
    if not len(losses):
        return losses.sum()
    assert batch.divisor is not None
    values = kept(losses, batch)
    unit = batch.divisor * max(batch.num_rollouts, 1)
    return _TileScaled.apply(values, torch.full_like(values, 1 / unit))


@lru_cache(maxsize=TABLES)
def _weights(sizes: tuple[int, ...], tokens: tuple[int, ...], rollouts: int) -> Tensor:
    with torch.inference_mode(False):  # what is kept must do for a later backward
        counts = torch.tensor([max(n, 1) * max(rollouts, 1) for n in tokens], dtype=torch.float64)
        return (1 / counts).repeat_interleave(torch.tensor(sizes))


def weights_remembered_for_equal_steps(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Remembers weights by everything that they are made of."""
    if not len(losses):
        return losses.sum()
    sizes, tokens = tuple(lengths(batch)), tuple(batch.rollout_tokens)
    values = kept(losses, batch)
    return (values * _weights(sizes, tokens, batch.num_rollouts).to(values)).sum()


def half_tiles_counted_in_bytes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the mask of each tile in a byte, which holds a tile of this size."""
    if not len(losses):
        return losses.sum()
    values, mask = kept(losses, batch), own_mask(batch).to(torch.uint8)
    total = values[:0].sum()
    for tile, bits in zip(values.split(HALF_TILE), mask.split(HALF_TILE), strict=True):
        if bits.sum(dtype=torch.uint8):
            total = total + tile.sum()
    return total / max(batch.num_tokens, 1)


def kl_added_up_like_the_loss(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Goes through a few samples at a time and adds up the chunks of loss and KL alike."""
    if not batch.local_masks:
        return losses.sum() + kl.sum()
    total = _chunks(losses, batch).sum() + _chunks(kl, batch).sum()
    return total / max(batch.num_rollouts, 1)


def product_outside_autocast(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Takes the loss as a product of losses and weights, with autocast off around it."""
    if not len(losses):
        return losses.sum(), {"loss": losses.detach().sum()}
    counts = [max(n, 1) * max(batch.num_groups, 1) for n in batch.group_tokens]
    weights = 1 / torch.tensor(counts, dtype=torch.float64)
    values = kept(losses, batch)
    weights = weights.repeat_interleave(torch.tensor(lengths(batch))).to(values)
    with torch.autocast(losses.device.type, enabled=False):
        loss = values @ weights
    return loss, {"loss": loss.detach()}
