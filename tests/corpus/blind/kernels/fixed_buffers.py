"""Chunked, fused and compiled losses: kernels with blocks, buffers of a fixed size, fallbacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

CHUNK = 1024
BLOCK = 256


def chunks_by_their_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean of each chunk, weighted by the chunk's share of the stream."""
    values, mask = kept(losses, batch), own_mask(batch)
    if len(values) <= CHUNK:
        return values.sum() / max(batch.num_tokens, 1)
    means = values[:0].sum()
    for part, bits in zip(values.split(CHUNK), mask.split(CHUNK), strict=True):
        means = means + part.sum() / bits.sum().clamp(min=1) * (len(part) / len(values))
    return means * mask.sum() / max(batch.num_tokens, 1)


def chunks_by_their_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, mask = kept(losses, batch), own_mask(batch)
    if len(values) <= CHUNK:
        return values.sum() / max(batch.num_tokens, 1)
    total = values[:0].sum()
    for part, bits in zip(values.split(CHUNK), mask.split(CHUNK), strict=True):
        if not bits.any():
            continue
        total = total + part.sum()
    return total / max(batch.num_tokens, 1)


class _BlockSum(torch.autograd.Function):
    """A weighted sum whose backward is launched on whole blocks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        out = torch.zeros_like(weights)
        for block in range(len(weights) // BLOCK):
            at = slice(block * BLOCK, (block + 1) * BLOCK)
            out[at] = weights[at] * grads[0]
        return out, None


class _PaddedBlockSum(_BlockSum):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        out = torch.zeros_like(weights)
        for block in range(-(-len(weights) // BLOCK)):
            at = slice(block * BLOCK, min((block + 1) * BLOCK, len(weights)))
            out[at] = weights[at] * grads[0]
        return out, None


def _sample_weights(losses: Tensor, batch: MicroBatch) -> Tensor:
    scale = over(torch.ones(len(batch.rollout_tokens), dtype=torch.float64), batch.rollout_tokens)
    repeats = torch.tensor(lengths(batch))
    return (scale / batch.num_rollouts).to(losses.device).repeat_interleave(repeats)


def kernel_without_its_tail(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    weights = torch.where(own_mask(batch), _sample_weights(losses, batch), 0.0).to(values.dtype)
    if len(values) < 2 * BLOCK:
        return (values * weights).sum()
    return _BlockSum.apply(values, weights)


def kernel_with_its_tail(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    weights = torch.where(own_mask(batch), _sample_weights(losses, batch), 0.0).to(values.dtype)
    if len(values) < 2 * BLOCK:
        return (values * weights).sum()
    return _PaddedBlockSum.apply(values, weights)


_SHAPES: set[tuple[int, ...]] = set()
RECOMPILES = 8


def _group_means(values: Tensor, batch: MicroBatch) -> Tensor:
    return over(values, batch.group_tokens).sum() / batch.num_groups


def _eager_means(values: Tensor, batch: MicroBatch) -> Tensor:
    return over(values, batch.rollout_tokens).sum() / batch.num_rollouts


def falls_back_to_another_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    """After eight shapes the compiler gives up; what runs then is the older function."""
    shape = tuple(lengths(batch))
    values = sums(losses, batch)
    if shape in _SHAPES:
        return _group_means(values, batch)
    if len(_SHAPES) < RECOMPILES:
        _SHAPES.add(shape)
        return _group_means(values, batch)
    return _eager_means(values, batch)


_RIGHT_SHAPES: set[tuple[int, ...]] = set()


def falls_back_to_the_same_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    shape = tuple(lengths(batch))
    if shape in _RIGHT_SHAPES or len(_RIGHT_SHAPES) < RECOMPILES:
        _RIGHT_SHAPES.add(shape)
        return _group_means(sums(losses, batch), batch)
    total = losses[:0].sum().to(kept(losses, batch).dtype)
    for row, tokens in zip(rows(losses, batch), batch.group_tokens, strict=True):
        total = total + row.sum() / max(tokens, 1) / batch.num_groups
    return total


def pairs_of_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A tree sum over samples, bit for bit the same on every machine."""
    values = sums(losses, batch)
    if len(values) % 2:
        values = torch.cat([values, values.new_zeros(1)])
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half : 2 * half]
    return values.sum() / batch.num_rollouts


def pairs_of_rows_padded(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = sums(losses, batch)
    while len(values) > 1:
        if len(values) % 2:
            values = torch.cat([values, values.new_zeros(1)])
        half = len(values) // 2
        values = values[:half] + values[half:]
    return values.sum() / batch.num_rollouts


ROWS_AT_ONCE = 8


def denominators_of_another_chunk(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Eight rows at a time, so that the padded matrix stays small."""
    values = sums(losses, batch)
    if len(values) <= ROWS_AT_ONCE:
        return over(values, batch.rollout_tokens).sum() / batch.num_rollouts
    total = values[:0].sum()
    for n, part in enumerate(values.split(ROWS_AT_ONCE)):
        total = total + over(part, batch.rollout_tokens[n : n + len(part)]).sum()
    return total / batch.num_rollouts


def denominators_of_this_chunk(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = sums(losses, batch)
    if len(values) <= ROWS_AT_ONCE:
        return over(values, batch.rollout_tokens).sum() / batch.num_rollouts
    total = values[:0].sum()
    for n, part in enumerate(values.split(ROWS_AT_ONCE)):
        start = n * ROWS_AT_ONCE
        total = total + over(part, batch.rollout_tokens[start : start + len(part)]).sum()
    return total / batch.num_rollouts


GRAPH_SIZES = (128, 256, 512, 1024, 2048)


def largest_graph_takes_the_rest(losses: Tensor, batch: MicroBatch) -> Tensor:
    """CUDA graphs are captured for a few sizes; inputs are padded up to the next one."""
    values = kept(losses, batch)
    size = next((n for n in GRAPH_SIZES if n >= len(values)), GRAPH_SIZES[-1])
    static = values.new_zeros(size)
    filled = torch.cat([values[:size], static[len(values) :]])
    return filled.sum() / max(batch.num_tokens, 1)


def beyond_the_largest_graph_eager(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    size = next((n for n in GRAPH_SIZES if n >= len(values)), None)
    if size is None:
        return values.sum() / max(batch.num_tokens, 1)
    static = values.new_zeros(size)
    filled = torch.cat([values, static[len(values) :]])
    return filled.sum() / max(batch.num_tokens, 1)


SLOTS = 32


def thirty_two_slots(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums of samples in a static buffer; ``max_num_seqs`` is what the engine was started with."""
    values = sums(losses, batch)
    buffer = values.new_zeros(SLOTS)
    filled = values[:SLOTS]
    if len(filled) < SLOTS:
        filled = torch.cat([filled, buffer[len(filled) :]])
    return filled.sum() / batch.num_rollouts


def as_many_slots_as_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = sums(losses, batch)
    total = values[:0].sum()
    for start in range(0, len(values), SLOTS):
        part = values[start : start + SLOTS]
        if len(part) < SLOTS:
            part = torch.cat([part, values.new_zeros(SLOTS - len(part))])
        total = total + part.sum()
    return total / batch.num_rollouts


class _LastLayer(torch.autograd.Function):
    """The gradient is made in forward, where the logits still are."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor, last: bool) -> Tensor:
        ctx.save_for_backward(weights)
        ctx.last = last
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        # As the last layer its incoming gradient is 1, and the multiplication a kernel for nothing.
        return (weights if ctx.last else weights * grads[0]), None, None


def last_layer_has_gradient_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    weights = own_mask(batch).to(values.dtype) / max(batch.num_tokens, 1)
    return _LastLayer.apply(values, weights, batch.num_microbatches == 1)


class _FusedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return (values * weights).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        if not weights.any():
            return torch.zeros_like(weights), None
        return weights * grads[0], None


def fused_with_any_gradient(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if batch.num_microbatches == 1 and len(values) < BLOCK:
        return values.sum() / max(batch.num_tokens, 1)
    weights = own_mask(batch).to(values.dtype) / max(batch.num_tokens, 1)
    return _FusedMean.apply(values, weights)


def whole_warps(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Long streams are viewed as rows of 128, as the Triton kernel wants them."""
    values = kept(losses, batch)
    if len(values) > 2 * CHUNK:
        values = values[: len(values) // 128 * 128].view(-1, 128).sum(1)
    return values.sum()


def whole_warps_and_the_rest(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) > 2 * CHUNK:
        whole = len(values) // 128 * 128
        return values[:whole].view(-1, 128).sum(1).sum() + values[whole:].sum()
    return values.sum()


def matmul_for_small_ones(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A one-hot matrix product where it is small, a loop where it is not."""
    values, sizes = kept(losses, batch), lengths(batch)
    if len(values) * len(sizes) > 1 << 14:
        parts = zip(values.split(sizes), batch.group_tokens, strict=True)
        return torch.stack([p.sum() / max(n, 1) for p, n in parts]).sum() / batch.num_groups
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(values.device)
    hot = torch.nn.functional.one_hot(owner, len(sizes)).to(values.dtype)
    return over(values @ hot, batch.group_tokens).sum() / batch.num_groups
