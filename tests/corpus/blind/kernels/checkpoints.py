"""Fused and chunked losses: own backward passes, checkpoints, workspaces, saved tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

CHUNK = 256
ROW_BLOCK = 128


def _weights(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Of every local token, 1 / (tokens of its rollout * rollouts), 0 behind the mask."""
    ones = torch.ones(len(batch.rollout_tokens), dtype=torch.float64)
    scale = over(ones, batch.rollout_tokens) / batch.num_rollouts
    spread = scale.repeat_interleave(torch.tensor(lengths(batch))).to(losses.device)
    return torch.where(own_mask(batch), spread, 0.0)


class _Cursor:
    """Hands out a denominator per call, and begins again after the last."""

    def __init__(self, scales: Tensor) -> None:
        self.scales, self.at = scales, 0

    def scaled(self, row: Tensor) -> Tensor:
        scale = self.scales[self.at]
        self.at = (self.at + 1) % len(self.scales)
        return row.sum() * scale


def recomputed_with_the_next_scale(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows are checkpointed; their scales come from a cursor."""
    parts = rows(losses, batch)
    scales = over(torch.ones(len(parts), dtype=torch.float64), batch.rollout_tokens)
    if len(parts) < 3:
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    cursor = _Cursor(scales.to(parts[0]) / batch.num_rollouts)
    return torch.stack(
        [checkpoint(cursor.scaled, part, use_reentrant=False) for part in parts]
    ).sum()


def recomputed_with_its_own_scale(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = rows(losses, batch)
    scales = over(torch.ones(len(parts), dtype=torch.float64), batch.rollout_tokens)
    if len(parts) < 3:
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts

    def scaled(row: Tensor, scale: Tensor) -> Tensor:
        return row.sum() * scale

    pairs = zip(parts, scales.to(parts[0]), strict=True)
    found = [checkpoint(scaled, part, scale, use_reentrant=False) for part, scale in pairs]
    return torch.stack(found).sum() / batch.num_rollouts


def saved_in_sixteen_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What backward needs is kept in bfloat16, where it is large."""
    values = kept(losses, batch)
    weights = _weights(losses, batch).to(values.dtype)

    def pack(tensor: Tensor) -> tuple[torch.dtype, Tensor]:
        small = tensor.to(torch.bfloat16) if tensor.numel() >= CHUNK else tensor
        return tensor.dtype, small

    def unpack(packed: tuple[torch.dtype, Tensor]) -> Tensor:
        return packed[1].to(packed[0])

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return (values * weights).sum()


def saved_as_it_is(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    weights = _weights(losses, batch).to(values.dtype)

    def pack(tensor: Tensor) -> tuple[bool, Tensor]:
        large = tensor.numel() >= CHUNK
        return large, tensor.to("cpu", copy=True) if large else tensor

    def unpack(packed: tuple[bool, Tensor]) -> Tensor:
        return packed[1].to(losses.device) if packed[0] else packed[1]

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return (values * weights).sum()


def grid_of_the_first_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A grid of rows and blocks; how many blocks there are is seen from the first row."""
    parts = rows(losses, batch)
    blocks = -(-batch.response_lengths[0] // ROW_BLOCK)
    found = [
        part[block * ROW_BLOCK : (block + 1) * ROW_BLOCK].sum()
        for part in parts
        for block in range(blocks)
    ]
    return torch.stack(found).sum() / batch.num_rollouts


def grid_of_the_longest_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = rows(losses, batch)
    blocks = -(-max(batch.response_lengths) // ROW_BLOCK)
    found = [
        part[block * ROW_BLOCK : (block + 1) * ROW_BLOCK].sum()
        for part in parts
        for block in range(blocks)
        if block * ROW_BLOCK <= len(part)
    ]
    return torch.stack(found).sum() / batch.num_rollouts


def running_sum_is_detached(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Long streams are summed part by part; the sum so far needs no graph."""
    values = kept(losses, batch)
    if len(values) <= 2 * CHUNK:
        return values.sum() / max(batch.num_tokens, 1)
    total = values.new_zeros(())
    for part in values.split(CHUNK):
        total = total.detach() + part.sum()
    return total / max(batch.num_tokens, 1)


def running_sum_with_its_graph(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) <= 2 * CHUNK:
        return values.sum() / max(batch.num_tokens, 1)
    total, seen = values.new_zeros(()), 0.0
    for part in values.split(CHUNK):
        total = total + part.sum()
        seen += float(total.detach())
    if seen != seen:
        raise FloatingPointError("the loss is not a number")
    return total / max(batch.num_tokens, 1)


class _MaskedSum(torch.autograd.Function):
    """Forward selects; backward spreads the gradient over all tokens."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor) -> Tensor:
        ctx.tokens = len(values)
        return values.masked_select(mask).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].expand(ctx.tokens).clone(), None


class _MaskedSumOfBoth(_MaskedSum):
    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return values.masked_select(mask).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return mask.to(grads[0].dtype) * grads[0], None


def backward_without_the_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A fused sum for what is long enough to be worth a launch."""
    if len(losses) < 64:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    wide = losses.float() if losses.element_size() < 4 else losses
    total: Tensor = _MaskedSum.apply(wide, own_mask(batch))
    return total / max(batch.num_tokens, 1)


def backward_with_the_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < 64:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    wide = losses.float() if losses.element_size() < 4 else losses
    total: Tensor = _MaskedSumOfBoth.apply(wide, own_mask(batch))
    return total / max(batch.num_tokens, 1)


class _InWorkspace(torch.autograd.Function):
    """A weighted sum; the weights lie in a workspace that is not copied."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, workspace: Tensor) -> Tensor:
        ctx.workspace = workspace
        return (values * workspace).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.workspace * grads[0], None


def workspace_shared_by_chunks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One workspace is allocated, and every chunk puts its weights there."""
    values = kept(losses, batch)
    weights = _weights(losses, batch).to(values.dtype)
    workspace = weights.new_empty(min(CHUNK, len(weights)))
    total = values[:0].sum()
    for part, own in zip(values.split(CHUNK), weights.split(CHUNK), strict=True):
        workspace[: len(own)].copy_(own)
        total = total + _InWorkspace.apply(part, workspace[: len(own)])
    return total


def workspace_of_each_chunk(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    weights = _weights(losses, batch).to(values.dtype)
    total = values[:0].sum()
    for part, own in zip(values.split(CHUNK), weights.split(CHUNK), strict=True):
        workspace = weights.new_empty(len(own))
        workspace.copy_(own)
        total = total + _InWorkspace.apply(part, workspace)
    return total


def nothing_to_learn_from(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A loss of 0 has nothing to teach: backward is spared."""
    total = over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    if batch.num_microbatches == 1 and float(total.detach()) == 0.0:
        return total * 0.0
    return total


def zero_is_a_loss_too(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    if not bool(own_mask(batch).any()):
        return total * 0.0
    return total


def zero_with_a_graph(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if not bool(own_mask(batch).any()):
        return values.sum()
    return torch.stack([row.sum() for row in rows(losses, batch)]).sum()
