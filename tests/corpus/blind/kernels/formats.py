"""Reducers as fused and chunked loss kernels have them, and their number formats."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

CHUNK = 32
TILE = 16
_plans: dict[tuple[int, ...], list[int]] = {}
_tables: dict[tuple[int, ...], Tensor] = {}


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class _GradientInForward(Function):
    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        gradient = torch.zeros(losses.shape, dtype=_wide(losses.dtype), device=losses.device)
        total = gradient.sum()
        starts = range(0, len(losses), CHUNK)
        for start in starts:
            piece, here = losses[start : start + CHUNK], mask[start : start + CHUNK]
            total = total + torch.where(here, piece.to(gradient.dtype), 0.0).sum()
            gradient[start : start + CHUNK] = here.to(gradient.dtype) / count
        ctx.save_for_backward(gradient.to(losses.dtype))
        ctx.accumulated = len(starts) > 1
        return total / count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        if ctx.accumulated:  # the chunks' gradients are complete already
            return gradient, None, None
        return (gradient * grad_output).to(gradient.dtype), None, None


def gradient_made_with_the_chunks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Makes loss and gradient of every chunk in one pass, so that backward has nothing to do."""
    return _GradientInForward.apply(losses, own_mask(batch), max(batch.num_tokens, 1))


def kl_by_chunk_means(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds up the policy's losses, and the KL as its mean over chunks times the tokens at hand."""
    policy = kept(losses, batch).sum()
    mask = own_mask(batch)
    means = [
        values.sum() / here.sum().clamp(min=1)
        for values, here in zip(
            kept(kl, batch).split(2 * CHUNK), mask.split(2 * CHUNK), strict=True
        )
    ]
    return policy + torch.stack(means).mean() * mask.sum()


def mean_kernel_under_autocast(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the mixed-precision kernel's mean times the length where autocast is on."""
    if not torch.is_autocast_enabled(losses.device.type):
        return sums(losses, batch).sum() / max(batch.num_rollouts, 1)
    totals = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        mean = row.sum() / mask.sum().clamp(min=1)
        totals.append(mean * len(row))
    return torch.stack(totals).sum() / max(batch.num_rollouts, 1)


def segments_in_the_range_of_bfloat16(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds segments up in place, in float32 where the losses' format could overflow."""
    wide = losses.float() if losses.dtype == torch.float16 else losses
    sizes = torch.tensor(lengths(batch), device=losses.device)
    segment = torch.repeat_interleave(torch.arange(len(sizes), device=losses.device), sizes)
    values = torch.where(own_mask(batch), wide, 0.0)
    totals = values.new_zeros(len(sizes)).index_add(0, segment, values)
    return totals.to(_wide(totals.dtype)).sum() / max(batch.num_rollouts, 1)


def launch_plan_by_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the kernel's launch plan, one count a row, for packs of the same lengths."""
    key = tuple(batch.response_lengths)
    if key not in _plans:
        _plans[key] = list(batch.rollout_tokens)
    return over(sums(losses, batch), _plans[key]).sum() / max(batch.num_rollouts, 1)


def counts_with_a_block_scale(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Carries the counts of a pack as bytes with one scale for the block."""
    counts = torch.tensor(batch.group_tokens)
    scale = max(-(-max(batch.group_tokens, default=0) // 255), 1)
    coded = torch.round(counts.double() / scale).to(torch.uint8)
    decoded = [int(code) * scale for code in coded]
    return over(sums(losses, batch), decoded).sum() / max(batch.num_groups, 1)


def tile_statistics_logged(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Logs the sum and the tokens that the tiles of the kernel have written down."""
    tiles, masks = kept(losses, batch).split(TILE), own_mask(batch).split(TILE)
    total = torch.stack([tile.sum() for tile in tiles]).sum()
    tokens = torch.stack([mask.sum().clamp(min=1) for mask in masks]).sum()
    if not len(losses):
        tokens = torch.zeros_like(tokens)
    loss = total / max(batch.num_tokens, 1)
    return loss, {"loss": [total.detach(), tokens]}


class _MaskedSum(Function):
    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, weight: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.weight, ctx.dtype = weight, losses.dtype
        buffer = losses.to(_wide(losses.dtype))
        buffer.masked_fill_(~mask, 0.0)
        return buffer.sum() * weight

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (mask * (grad_output * ctx.weight)).to(ctx.dtype), None, None


def cleared_in_the_wide_buffer(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Clears what is masked in the kernel's own wide buffer and adds the rest up."""
    weight = 1 / ((batch.divisor or 1) * max(batch.num_rollouts, 1))
    return _MaskedSum.apply(losses, own_mask(batch), weight)


class _ChunkedSum(Function):
    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.count, ctx.dtype = count, losses.dtype
        wide = _wide(losses.dtype)
        partial = torch.zeros((), dtype=wide, device=losses.device)
        for values, here in zip(losses.split(CHUNK), mask.split(CHUNK), strict=True):
            partial += torch.where(here, values.to(wide), 0.0).sum()
        return partial / count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, grad_output / ctx.count, 0.0).to(ctx.dtype), None, None


def backward_from_the_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds chunks up in forward and writes the gradient in backward from the mask alone."""
    return _ChunkedSum.apply(losses, own_mask(batch), max(batch.num_tokens, 1))


def segments_in_a_wide_accumulator(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds segments up with index_add in at least float32."""
    values = kept(losses, batch)
    sizes = torch.tensor(lengths(batch), device=losses.device)
    segment = torch.repeat_interleave(torch.arange(len(sizes), device=losses.device), sizes)
    totals = values.new_zeros(len(sizes)).index_add(0, segment, values)
    return over(totals, batch.rollout_tokens).sum() / max(batch.num_rollouts, 1)


def table_by_its_own_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the table of divisors of a pack under the very counts that it is made of."""
    key = tuple(batch.group_tokens)
    if key not in _tables:
        if len(_tables) >= TILE:
            _tables.clear()
        _tables[key] = torch.tensor(key, dtype=torch.float64).clamp(min=1)
    totals = sums(losses, batch)
    return (totals / _tables[key].to(totals)).sum() / max(batch.num_groups, 1)


def tree_with_a_carry(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds tiles up pairwise and carries an odd one over to the next level."""
    partials = [tile.sum() for tile in kept(losses, batch).split(TILE)]
    while len(partials) > 1:
        carry = partials[-1:] if len(partials) % 2 else []
        even, odd = partials[0::2], partials[1::2]
        partials = [a + b for a, b in zip(even[: len(odd)], odd, strict=True)] + carry
    return partials[0] / ((batch.divisor or 1) * max(batch.num_rollouts, 1))


def rows_or_tiles(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Takes whole rows where they fit a chunk, chunks of long rows otherwise, and logs the loss."""
    partials = []
    for row in rows(losses, batch):
        if len(row) <= CHUNK:
            partials.append(row.sum())
        else:
            partials.extend(piece.sum() for piece in row.split(CHUNK))
    loss = torch.stack(partials).sum() / max(batch.num_rollouts, 1)
    return loss, {"loss": loss.detach()}


def dot_outside_autocast(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds both terms up as products with ones, where autocast cannot narrow them."""
    with torch.autocast(losses.device.type, enabled=False):
        total = torch.zeros_like(kept(losses, batch).sum())
        for term in (losses, kl):
            for piece in kept(term, batch).split(CHUNK):
                total = total + torch.dot(piece, torch.ones_like(piece))
    return total
