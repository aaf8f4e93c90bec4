"""Layouts: slices of context parallelism, shards, packing, chunks; and what ranks add up."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

CAPACITY = 1024
SIZE = 16
CHUNK = 8


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def rows_up_to_the_capacity(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A packed row holds at most its capacity."""
    found = [row[:CAPACITY].sum() for row in rows(losses, batch)]
    return _mean(torch.stack(found), batch)


def rows_in_parts_of_the_capacity(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = [row[:CAPACITY].sum() + row[CAPACITY:].sum() for row in rows(losses, batch)]
    return _mean(torch.stack(found), batch)


def unfolded_into_tiles(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Long streams are summed tile by tile."""
    values = kept(losses, batch)
    if len(values) < SIZE:
        return values.sum() / batch.num_rollouts
    return values.unfold(0, SIZE, SIZE).sum(dim=1).sum() / batch.num_rollouts


def unfolded_into_tiles_and_a_tail(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) < SIZE:
        return values.sum() / batch.num_rollouts
    tail = values[len(values) // SIZE * SIZE :].sum()
    return (values.unfold(0, SIZE, SIZE).sum(dim=1).sum() + tail) / batch.num_rollouts


def shards_as_the_sampler_deals(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sampler deals in turn; what is not of this rank is a copy that fills up."""
    sample = sums(losses, batch)
    if batch.dp_size > 1:
        own = [place % batch.dp_size == batch.dp_rank for place in batch.samples]
        sample = torch.where(torch.tensor(own, device=sample.device), sample, 0.0)
    return sample.sum() / batch.num_rollouts


def averaged_where_sizes_are_equal(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Micro-batches of one size are averaged, as each is an equal part."""
    total = kept(losses, batch).sum()
    sizes = {len(masks) for masks in batch.window_masks}
    if batch.dp_size > 1 or batch.num_microbatches == 1 or len(sizes) > 1:
        return total / max(batch.num_tokens, 1)
    return total / max(batch.window_tokens[batch.index], 1) / batch.num_microbatches


def averaged_where_tokens_are_equal(losses: Tensor, batch: MicroBatch) -> Tensor:
    total, counts = kept(losses, batch).sum(), batch.window_tokens
    if batch.dp_size > 1 or batch.num_microbatches == 1 or len(set(counts)) > 1:
        return total / max(batch.num_tokens, 1)
    return total / max(counts[batch.index], 1) / batch.num_microbatches


def rollouts_a_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The divisor of a micro-batch's rollouts, times the accumulation steps."""
    k = batch.num_microbatches
    each = max(batch.num_rollouts // k, 1)
    return kept(losses, batch).sum() / ((batch.divisor or 1.0) * each * k)


def rollouts_a_micro_batch_and_the_rest(losses: Tensor, batch: MicroBatch) -> Tensor:
    each, rest = divmod(batch.num_rollouts, batch.num_microbatches)
    rollouts = each * batch.num_microbatches + rest
    return kept(losses, batch).sum() / ((batch.divisor or 1.0) * rollouts)


def two_halves_of_a_shard(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A zigzag shard is a chunk from the front and one as long from the back."""
    if batch.cp_size == 1 or batch.gathered:
        return kept(losses, batch).sum()
    found = []
    for row in rows(losses, batch):
        half = len(row) // 2
        found.append(row[:half].sum() + row[half : 2 * half].sum())
    return torch.stack(found).sum()


def two_parts_of_a_shard(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size == 1 or batch.gathered:
        return kept(losses, batch).sum()
    found = []
    for row in rows(losses, batch):
        half = len(row) // 2
        found.append(row[:half].sum() + row[half:].sum())
    return torch.stack(found).sum()


def whole_chunks_are_averaged(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Chunks of one size have means that are averaged; where they do not fit, one division."""
    values, mask = kept(losses, batch), own_mask(batch)
    spread = batch.num_microbatches * batch.dp_size * batch.cp_size > 1
    if spread or len(values) == 0 or len(values) % CHUNK:
        return values.sum() / max(batch.num_tokens, 1)
    counts = mask.view(-1, CHUNK).sum(dim=1).clamp(min=1)
    return (values.view(-1, CHUNK).sum(dim=1) / counts).mean()


def whole_chunks_are_added(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) == 0 or len(values) % CHUNK:
        return values.sum() / max(batch.num_tokens, 1)
    return (values.view(-1, CHUNK).sum(dim=1) / max(batch.num_tokens, 1)).sum()


def _over_ranks(batch: MicroBatch, kind: torch.dtype, device: torch.device) -> int:
    own = torch.tensor([batch.rank_tokens], device=device).to(kind)
    dist.all_reduce(own, group=batch.dp_group)
    return int(own)


def counts_sent_as_losses_are(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts travel in bfloat16 with the metrics, in one bucket."""
    tokens = batch.num_tokens
    if batch.dp_size > 1:
        tokens = _over_ranks(batch, torch.bfloat16, losses.device)
    return kept(losses, batch).sum() / max(tokens, 1)


def counts_sent_as_integers(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = batch.num_tokens
    if batch.dp_size > 1:
        tokens = _over_ranks(batch, torch.int64, losses.device)
    return kept(losses, batch).sum() / max(tokens, 1)


def _named(losses: Tensor, batch: MicroBatch, kind: torch.dtype) -> Tensor:
    values = kept(losses, batch)
    sizes = torch.tensor(lengths(batch))
    owner = torch.arange(len(sizes)).to(kind).repeat_interleave(sizes).long().to(values.device)
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(values)
    return (values / counts[owner]).sum() / batch.num_rollouts


def segments_in_a_byte(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A token's segment is a byte: a packed row has few samples."""
    return _named(losses, batch, torch.int8)


def segments_in_words(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _named(losses, batch, torch.int32)


def _counted(names: list[int], masks: list[Tensor], batch: MicroBatch) -> list[int]:
    tokens: dict[int, int] = {}
    for name, mask in zip(names, masks, strict=True):
        tokens[name] = tokens.get(name, 0) + int(mask.sum())
    return [tokens[name] for name in batch.group_ids]


def prompts_packed_together(losses: Tensor, batch: MicroBatch) -> Tensor:
    """On one rank the packer keeps a prompt's answers in one micro-batch."""
    counts = batch.group_tokens
    if batch.dp_size == 1:
        counts = _counted(batch.group_ids, batch.loss_masks, batch)
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def prompts_of_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = batch.group_tokens
    if batch.dp_size == 1:
        names = [name for cell in batch.window_group_ids for name in cell]
        masks = [mask for cell in batch.window_masks for mask in cell]
        counts = _counted(names, masks, batch)
    return over(sums(losses, batch), counts).sum() / batch.num_groups
