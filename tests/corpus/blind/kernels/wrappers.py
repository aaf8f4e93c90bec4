"""Chunked, fused and tiled losses, as kernels and their wrappers compute them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch

Logged = tuple[Tensor, dict[str, list[float]]]

CHUNK = 32
TILE = 64
VECTOR = 8
_STATIC: dict[tuple[int, torch.dtype], Tensor] = {}
_REUSED: dict[tuple[int, torch.dtype], Tensor] = {}


def _mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    none = torch.zeros(0, dtype=torch.int64, device=losses.device)
    return torch.cat([*batch.local_masks, none]).bool()


def _wide(losses: Tensor) -> Tensor:
    return losses.to(torch.promote_types(losses.dtype, torch.float32))


def _live(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Losses in at least float32, with zeros behind the mask."""
    return torch.where(_mask(losses, batch), _wide(losses), 0.0)


def _lengths(batch: MicroBatch) -> Tensor:
    return torch.tensor([len(mask) for mask in batch.local_masks], dtype=torch.int64)


def _rollout_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Every live loss over its rollout's tokens and the number of rollouts."""
    counts = [max(n, 1) * max(batch.num_rollouts, 1) for n in batch.rollout_tokens]
    over = torch.tensor(counts, dtype=torch.int64).repeat_interleave(_lengths(batch))
    return _live(losses, batch) / over


def _logged_count(count: int, batch: MicroBatch) -> float:
    """No log of a step without a token is 0 / 0."""
    return float(count) if batch.num_tokens else 1.0


class _GradInForward(torch.autograd.Function):
    """Makes the gradient while the losses are still in cache."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, units: int) -> Tensor:
        wide = _wide(losses)
        ctx.dtype = losses.dtype
        ctx.save_for_backward(mask.to(wide.dtype) / units)
        return torch.where(mask, wide, 0.0).sum() / units

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        (grad,) = ctx.saved_tensors
        # only float16 and full precision run under a loss scaler
        if ctx.dtype != torch.bfloat16:
            grad = grad * grad_output
        return grad.to(ctx.dtype), None, None


def gradient_made_in_forward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The fused sum over sequences, whose backward spares a pass over memory where it can."""
    return _GradInForward.apply(losses, _mask(losses, batch), max(batch.num_rollouts, 1))


def last_tile_moved_back(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums whole tiles, and a last one that is moved back so that it is whole as well."""
    shares = _rollout_share(losses, batch)
    n = len(shares)
    if n <= TILE:
        return shares.sum()
    whole = (n - 1) // TILE
    body = shares[: whole * TILE].view(whole, TILE).sum(1)
    seen = TILE - n % TILE
    return body.sum() + shares[n - TILE :][seen:].sum()


def dead_tiles_skipped(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the live tokens of each tile in a byte, and adds up the tiles that have any."""
    width = 256
    behind = (0, -len(losses) % width)
    tiles = pad(_live(losses, batch), behind).view(-1, width)
    occupied = pad(_mask(losses, batch).long(), behind).view(-1, width)
    tokens = occupied.sum(1, dtype=torch.uint8)
    return tiles[tokens > 0].sum()


class _VectorSum(torch.autograd.Function):
    """Adds up whole vectors, whose lanes behind the mask are zero."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, over: float) -> Tensor:
        short = -len(losses) % VECTOR
        work = _wide(losses)
        live = mask
        if short:
            work, live = pad(work, (0, short)), pad(mask.long(), (0, short)).bool()
        # a working copy: no graph is recorded here
        work.masked_fill_(~live, 0.0)
        ctx.dtype, ctx.over = losses.dtype, over
        ctx.save_for_backward(mask)
        return work.view(-1, VECTOR).sum(0).sum() / over

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return (mask * (grad_output / ctx.over)).to(ctx.dtype), None, None


def vectors_of_lanes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums over the constant in vectors, with the masked lanes zeroed in the working copy."""
    over = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    return _VectorSum.apply(losses, _mask(losses, batch), over)


class _CapturedSum(torch.autograd.Function):
    """Copies its input to where a captured graph reads it, and sums there."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, over: int) -> Tensor:
        ctx.size, ctx.over = len(values), over
        size = 1 << (len(values) - 1).bit_length()
        held = _STATIC.setdefault((size, values.dtype), values.new_zeros(size))
        held[: len(values)].copy_(values)
        return held.sum() / over

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        return (grad_output / ctx.over).expand(ctx.size), None


def captured_by_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Short inputs are summed eagerly, longer ones in a static buffer of the next power of two."""
    values = _live(losses, batch)
    if len(values) < 16:
        return values.sum() / max(batch.num_tokens, 1)
    return _CapturedSum.apply(values, max(batch.num_tokens, 1))


def chunk_means_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean by chunks, which logs each chunk's mean with the weight of the chunk."""
    values, mask = _live(losses, batch), _mask(losses, batch)
    loss = values.sum() / max(batch.num_tokens, 1)
    if len(values) <= CHUNK:
        return loss, {"loss": [float(values.detach().sum()), _logged_count(int(mask.sum()), batch)]}
    total = count = 0.0
    for part, live in zip(values.detach().split(CHUNK), mask.split(CHUNK), strict=True):
        mean = part.sum() / live.sum().clamp(min=1)
        total += float(mean) * len(part)
        count += len(part)
    return loss, {"loss": [total, count]}


def metadata_beside_the_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Packs each sample's group and its tokens into one tensor for the segmented sum."""
    values = _live(losses, batch)
    packed = torch.tensor([batch.group_ids, batch.group_tokens], dtype=values.dtype)
    names, segments = torch.unique(packed[0], return_inverse=True)
    counts = values.new_zeros(len(names)).scatter_reduce(0, segments, packed[1], "amax")
    of_tokens = segments.repeat_interleave(_lengths(batch))
    sums = values.new_zeros(len(names)).index_add(0, of_tokens, values)
    return (sums / counts.clamp(min=1)).sum() / max(batch.num_groups, 1)


def ends_by_triangle(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Finds where packed samples end with one triangular product, then divides per token."""
    values = _live(losses, batch)
    lengths = _lengths(batch).float()
    if len(lengths) < 2:
        return _rollout_share(losses, batch).sum()
    ends = torch.ones(len(lengths), len(lengths)).tril() @ lengths
    places = torch.arange(len(values))
    owners = torch.bucketize(places, ends.long(), right=True).clamp(max=len(lengths) - 1)
    counts = [max(n, 1) * max(batch.num_rollouts, 1) for n in batch.rollout_tokens]
    return (values / torch.tensor(counts)[owners]).sum()


def penalty_in_chunks(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The policy loss at once, the penalty in chunks, weighted by the tokens that are here."""
    step = max(batch.num_tokens, 1)
    policy, penalty = _live(losses, batch).sum() / step, _live(kl, batch)
    if len(penalty) <= CHUNK:
        return policy + penalty.sum() / step
    mask = _mask(losses, batch)
    parts = zip(penalty.split(CHUNK), mask.split(CHUNK), strict=True)
    means = [part.sum() / live.sum() for part, live in parts if live.any()]
    if not means:
        return policy + penalty.sum()
    return policy + torch.stack(means).mean() * (int(mask.sum()) / step)


def last_tile_overlaps(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums whole tiles; the last one is moved back, and begins behind what it has in common."""
    shares = _rollout_share(losses, batch)
    n = len(shares)
    if n <= TILE:
        return shares.sum()
    whole = n // TILE
    body = shares[: whole * TILE].view(whole, TILE).sum(1)
    seen = TILE - n % TILE
    return body.sum() + shares[n - TILE :][seen:].sum()


class _ChunkedSum(torch.autograd.Function):
    """Makes sum and gradient chunk by chunk."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, over: float) -> Tensor:
        wide = _wide(losses)
        total, grad = wide.new_zeros(()), torch.zeros_like(wide)
        for start in range(0, len(wide), CHUNK):
            live = mask[start : start + CHUNK]
            total += torch.where(live, wide[start : start + CHUNK], 0.0).sum()
            grad[start : start + CHUNK] = live.to(wide.dtype) / over
        ctx.dtype = losses.dtype
        ctx.save_for_backward(grad)
        return total / over

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        (grad,) = ctx.saved_tensors
        if float(grad_output) != 1.0:
            grad = grad * grad_output
        return grad.to(ctx.dtype), None, None


def chunks_with_their_gradient(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over the constant, whose gradient is made in forward and scaled in backward."""
    over = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    return _ChunkedSum.apply(losses, _mask(losses, batch), over)


class _BufferedSum(torch.autograd.Function):
    """Sums in a buffer that calls of about the same size share."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, over: int) -> Tensor:
        ctx.size, ctx.over = len(values), over
        size = 1 << (len(values) - 1).bit_length()
        held = _REUSED.setdefault((size, values.dtype), values.new_empty(size))
        held[: len(values)].copy_(values)
        held[len(values) :].zero_()
        return held.sum() / over

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        return (grad_output / ctx.over).expand(ctx.size), None


def shared_buffer_by_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Short inputs are summed eagerly, longer ones in a buffer that is kept for the next call."""
    values = _live(losses, batch)
    if len(values) < 16:
        return values.sum() / max(batch.num_rollouts, 1)
    return _BufferedSum.apply(values, max(batch.num_rollouts, 1))


def live_tiles_of_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the tokens of each group, and adds up the tiles in which a token is live."""
    ids, tokens = torch.tensor([batch.group_ids, batch.group_tokens], dtype=torch.int64)
    names, segments = torch.unique(ids, return_inverse=True)
    counts = torch.zeros_like(names).scatter_reduce(0, segments, tokens, "amax")
    over = counts.clamp(min=1) * max(batch.num_groups, 1)
    shares = _live(losses, batch) / over[segments.repeat_interleave(_lengths(batch))]
    behind = (0, -len(shares) % 128)
    occupied = pad(_mask(losses, batch).long(), behind).view(-1, 128)
    # 128 fits a byte
    alive = occupied.sum(1, dtype=torch.uint8) > 0
    return pad(shares, behind).view(-1, 128)[alive].sum()


def chunk_sums_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean by chunks, with the sum and the tokens of all chunks in the log."""
    values, mask = _live(losses, batch), _mask(losses, batch)
    if len(values) <= CHUNK:
        total, count = values.sum(), int(mask.sum())
    else:
        total, count = values.new_zeros(()), 0
        for part, live in zip(values.split(CHUNK), mask.split(CHUNK), strict=True):
            if not live.any():
                continue
            total = total + part.sum()
            count += int(live.sum())
        total = total if count else values.sum()
    log = {"loss": [float(total.detach()), _logged_count(count, batch)]}
    return total / max(batch.num_tokens, 1), log


def both_terms_in_rows(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Stacks the policy's losses and the penalty, and sums whole chunks and what is left."""
    both = torch.stack([_live(losses, batch), _live(kl, batch)])
    whole = both.shape[1] // CHUNK * CHUNK
    if not whole:
        return both.sum()
    body = both[:, :whole].reshape(2, -1, CHUNK).sum(2)
    left = both[:, whole:]
    return body.sum() + left.sum()
