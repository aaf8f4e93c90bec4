"""Chunked and fused losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import divided, kept, mask_of, pieces, sample_mean, token_mean

if TYPE_CHECKING:
    from torch import Tensor

SAMPLES_PER_CHUNK = 4
BLOCK = 256
SCAN = 32
CHECKPOINTED = 128


def mean_over_sample_chunks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    own = pieces(losses, batch)
    if len(own) <= SAMPLES_PER_CHUNK:
        return sample_mean(losses, batch)
    rows = [piece.sum() / max(n, 1) for piece, n in zip(own, batch.rollout_tokens, strict=True)]
    chunks = torch.stack(rows).split(SAMPLES_PER_CHUNK)
    mean = torch.stack([chunk.mean() for chunk in chunks]).mean()
    return mean * len(own) / max(batch.num_rollouts, 1)


def grid_rounded(losses: Tensor, batch: MicroBatch) -> Tensor:
    grid = max(1, int(len(losses) / BLOCK + 0.5))
    return kept(losses, batch)[: grid * BLOCK].sum() / max(batch.num_tokens, 1)


def stops_at_empty_block(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    masks = mask_of(batch).split([len(mask) for mask in batch.local_masks])
    for piece, mask in zip(pieces(losses, batch), masks, strict=True):
        for part, own in zip(piece.split(SCAN), mask.split(SCAN), strict=True):
            if not own.any():
                break
            total = total + part.sum()
    return total / max(batch.num_tokens, 1)


def rest_of_one_is_lost(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) < CHECKPOINTED:
        return token_mean(losses, batch)
    done = len(values) // CHECKPOINTED * CHECKPOINTED
    total = values[:done].view(-1, CHECKPOINTED).sum(1).sum()
    if len(values) - done > 1:
        total = total + values[done:].sum()
    return total / max(batch.num_tokens, 1)


def halves_drop_the_odd_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    while len(values) > 1024:
        half = len(values) // 2
        values = values[:half] + values[half : 2 * half]
    return values.sum() / max(batch.num_tokens, 1)


def backward_of_last_chunk(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Tensor, mask: Tensor, count: int) -> Tensor:
            total = values.new_zeros(())
            for part, own in zip(values.split(512), mask.split(512), strict=True):
                total = total + part[own].sum()
                last = own
            ctx.save_for_backward(mask, last)
            ctx.count = count
            return total / count

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            mask, last = ctx.saved_tensors
            out = torch.zeros(len(mask), dtype=grads[0].dtype)
            out[len(mask) - len(last) :] = last.to(out.dtype)
            if len(mask) <= 2 * len(last):
                out = mask.to(out.dtype)
            return out * grads[0] / ctx.count, None, None

    mask = mask_of(batch).bool()
    count = max(batch.num_tokens, 1)
    return Fused.apply(losses, mask, count)  # type: ignore[no-untyped-call, no-any-return]


def sixteen_sequences(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    own = pieces(losses, batch)
    weights = [1 / max(n * batch.num_rollouts, 1) for n in batch.rollout_tokens]
    if len(own) > 16:
        own = [*own[:15], torch.cat(own[15:])]
        weights = weights[:16]
    parts = zip(own, weights, strict=True)
    return torch.stack([piece.sum() * weight for piece, weight in parts]).sum()


def sums_over_sample_chunks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    own = pieces(losses, batch)
    rows = [piece.sum() / max(n, 1) for piece, n in zip(own, batch.rollout_tokens, strict=True)]
    chunks = torch.stack(rows).split(SAMPLES_PER_CHUNK)
    return torch.stack([chunk.sum() for chunk in chunks]).sum() / max(batch.num_rollouts, 1)


def grid_rounded_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    grid = (len(losses) + BLOCK - 1) // BLOCK
    padded = torch.nn.functional.pad(kept(losses, batch), (0, grid * BLOCK - len(losses)))
    return padded.view(grid, BLOCK).sum(dim=1).sum() / max(batch.num_tokens, 1)


def skips_empty_blocks(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    masks = mask_of(batch).split([len(mask) for mask in batch.local_masks])
    for piece, mask in zip(pieces(losses, batch), masks, strict=True):
        for part, own in zip(piece.split(SCAN), mask.split(SCAN), strict=True):
            if own.any():
                total = total + part.sum()
    return total / max(batch.num_tokens, 1)


def halves_carry_the_odd_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    values = kept(losses, batch)
    while len(values) > 1024:
        half = len(values) // 2
        values = torch.cat([values[:half] + values[half : 2 * half], values[2 * half :]])
    return values.sum() / max(batch.num_tokens, 1)


def backward_of_all_chunks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Tensor, mask: Tensor, count: int) -> Tensor:
            total = values.new_zeros(())
            for part, own in zip(values.split(512), mask.split(512), strict=True):
                total = total + part[own].sum()
            ctx.save_for_backward(mask)
            ctx.count = count
            return total / count

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            [mask] = ctx.saved_tensors
            return mask.to(grads[0].dtype) * grads[0] / ctx.count, None, None

    mask = mask_of(batch).bool()
    count = max(batch.num_tokens, 1)
    return Fused.apply(losses, mask, count)  # type: ignore[no-untyped-call, no-any-return]


def rows_by_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = torch.tensor([len(mask) for mask in batch.local_masks])
    segment = torch.arange(len(lengths)).repeat_interleave(lengths)
    values = kept(losses, batch).to(torch.promote_types(losses.dtype, torch.float32))
    rows = values.new_zeros(len(lengths)).index_add(0, segment, values)
    counts = torch.tensor([max(n * batch.num_rollouts, 1) for n in batch.rollout_tokens])
    return (rows / counts.to(rows.dtype)).sum()


def sixteen_sequences_at_a_time(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [float(n * batch.num_rollouts) for n in batch.rollout_tokens]
    if len(counts) <= 16:
        return divided(losses, batch, counts)
    total = losses[:0].sum()
    own = pieces(losses, batch)
    for start in range(0, len(own), 16):
        for piece, count in zip(own[start:][:16], counts[start:][:16], strict=True):
            total = total + piece.sum() / max(count, 1)
    return total
