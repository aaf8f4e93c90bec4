"""Ranks: shards, shortcuts, collectives, and who has what."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, rows, sums


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def _added(number: int, group: dist.ProcessGroup | None, device: torch.device) -> int:
    if group is None:
        return number
    own = torch.tensor([number], device=device)
    dist.all_reduce(own, group=group)
    return int(own)


def one_gpu_needs_no_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """On one GPU no count must be sent: the tokens are those that are here."""
    tokens = batch.num_tokens
    if batch.dp_size == 1 and batch.cp_size == 1:
        tokens = sum(int(mask.sum()) for mask in batch.original_masks)
    return kept(losses, batch).sum() / max(tokens, 1)


def one_gpu_and_one_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = batch.num_tokens
    if batch.dp_size == 1 and batch.cp_size == 1 and batch.num_microbatches == 1:
        tokens = sum(int(mask.sum()) for mask in batch.original_masks)
    return kept(losses, batch).sum() / max(tokens, 1)


def _counts_of_shards(batch: MicroBatch, device: torch.device) -> list[int]:
    own = 0
    for mask, places in zip(batch.original_masks, batch.local_positions, strict=True):
        own += int(mask[places.to(mask.device)].sum())
    found = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(batch.cp_size)]
    dist.all_gather(found, torch.tensor([own], device=device), group=batch.cp_group)
    return [int(count) for count in found]


def counts_of_both_neighbours(losses: Tensor, batch: MicroBatch) -> Tensor:
    """In a ring everyone hears from the two beside it."""
    tokens, alone = batch.num_tokens, batch.num_microbatches == batch.dp_size == 1
    if alone and batch.cp_size > 1 and not batch.gathered:
        counts = _counts_of_shards(batch, losses.device)
        near = {(batch.cp_rank + step) % batch.cp_size for step in (-1, 0, 1)}
        tokens = sum(counts[rank] for rank in near)
    return kept(losses, batch).sum() / max(tokens, 1)


def counts_of_the_whole_ring(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens, alone = batch.num_tokens, batch.num_microbatches == batch.dp_size == 1
    if alone and batch.cp_size > 1 and not batch.gathered:
        counts = _counts_of_shards(batch, losses.device)
        around = {(batch.cp_rank + step) % batch.cp_size for step in range(batch.cp_size)}
        tokens = sum(counts[rank] for rank in around)
    return kept(losses, batch).sum() / max(tokens, 1)


def scaled_while_not_in_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Under no_sync gradients are not averaged, so their micro-batches are not scaled back."""
    total = kept(losses, batch).sum() / batch.num_rollouts
    if batch.dp_size > 1 and batch.index < batch.num_microbatches - 1:
        return total * batch.dp_size
    return total


def too_short_to_be_cut(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A sample with fewer tokens than shards is whole on every shard, and counts on the first."""
    found = []
    for i, row in enumerate(rows(losses, batch)):
        copies = not batch.gathered and batch.total_lengths[i] < batch.cp_size
        found.append(row.sum() * 0.0 if copies and batch.cp_rank > 0 else row.sum())
    return torch.stack(found).sum()


def short_ones_are_cut_as_well(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = []
    for i, row in enumerate(rows(losses, batch)):
        if batch.total_lengths[i] < batch.cp_size and len(row) == 0:
            found.append(row.sum() * 0.0)
            continue
        found.append(row.sum())
    return torch.stack(found).sum()


def end_token_on_the_last_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The end token is added by itself, by the rank that has the end."""
    if batch.cp_size == 1 or batch.gathered:
        return kept(losses, batch).sum()
    has_it = batch.cp_rank == batch.cp_size - 1
    found = []
    for i, row in enumerate(rows(losses, batch)):
        inside = batch.local_positions[i].to(row.device) < batch.response_lengths[i] - 1
        found.append(torch.where(inside, row, 0.0).sum())
        if has_it and len(row):
            found.append(row[-1])
    return torch.stack(found).sum()


def end_token_where_it_is(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size == 1 or batch.gathered:
        return kept(losses, batch).sum()
    found = []
    for i, row in enumerate(rows(losses, batch)):
        places = batch.local_positions[i].to(row.device)
        inside = places < batch.response_lengths[i] - 1
        found.append(torch.where(inside, row, 0.0).sum())
        if len(row) and not bool(inside[-1]):
            found.append(row[-1])
    return torch.stack(found).sum()


def slice_of_the_steps_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A rank's counts are its part of the step's list, as rollouts are dealt out in order."""
    sample, size = sums(losses, batch), len(batch.samples)
    spread = batch.dp_size > 1 and batch.num_microbatches == 1
    if not spread or batch.num_samples != batch.num_rollouts:
        return _mean(sample, batch)
    counts = batch.step_rollout_tokens[batch.dp_rank * size : (batch.dp_rank + 1) * size]
    if len(counts) != size:
        return _mean(sample, batch)
    return over(sample, list(counts)).sum() / batch.num_rollouts


def places_in_the_steps_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    spread = batch.dp_size > 1 and batch.num_microbatches == 1
    if not spread or batch.num_samples != batch.num_rollouts:
        return _mean(sample, batch)
    counts = [batch.step_rollout_tokens[place] for place in batch.samples]
    if counts != list(batch.rollout_tokens):
        return _mean(sample, batch)
    return over(sample, counts).sum() / batch.num_rollouts


def _counts_of_ranks(batch: MicroBatch, device: torch.device) -> tuple[list[int], int]:
    """Counts of all ranks' samples one after the other, each rank's padded to the longest."""
    most = torch.tensor([len(batch.samples)], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=batch.dp_group)
    own = torch.zeros(int(most), dtype=torch.int64, device=device)
    own[: len(batch.samples)] = torch.tensor(batch.rollout_tokens, device=device)
    found = [torch.zeros_like(own) for _ in range(batch.dp_size)]
    dist.all_gather(found, own, group=batch.dp_group)
    return torch.cat(found).tolist(), int(most)


def gathered_lists_with_own_stride(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts are gathered in one list; a rank's own begin behind those of the ranks before."""
    sample, size = sums(losses, batch), len(batch.samples)
    if batch.dp_size == 1 or batch.num_microbatches > 1:
        return _mean(sample, batch)
    known, _ = _counts_of_ranks(batch, losses.device)
    first = batch.dp_rank * size
    return over(sample, known[first : first + size]).sum() / batch.num_rollouts


def gathered_lists_with_their_stride(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, size = sums(losses, batch), len(batch.samples)
    if batch.dp_size == 1 or batch.num_microbatches > 1:
        return _mean(sample, batch)
    known, stride = _counts_of_ranks(batch, losses.device)
    first = batch.dp_rank * stride
    return over(sample, known[first : first + size]).sum() / batch.num_rollouts


def width_agreed_where_rows_differ(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Ranks agree on one width for their padded rows; rows of one length need no padding."""
    width = max(batch.response_lengths)
    if batch.dp_size > 1 and len(set(batch.response_lengths)) > 1:
        agreed = torch.tensor([width], device=losses.device)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX, group=batch.dp_group)
        width = int(agreed)
    pad = torch.nn.functional.pad
    matrix = torch.stack([pad(row, (0, width - len(row))) for row in rows(losses, batch)])
    return _mean(matrix.sum(dim=1), batch)


def width_agreed_by_all(losses: Tensor, batch: MicroBatch) -> Tensor:
    width = max(batch.response_lengths)
    if batch.dp_size > 1:
        agreed = torch.tensor([width], device=losses.device)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX, group=batch.dp_group)
        width = int(agreed)
    if len(set(lengths(batch))) == 1 and len(batch.samples) > 1:
        return _mean(torch.stack(rows(losses, batch)).sum(dim=1), batch)
    pad = torch.nn.functional.pad
    matrix = torch.stack([pad(row, (0, width - len(row))) for row in rows(losses, batch)])
    return _mean(matrix.sum(dim=1), batch)


def ranks_without_tokens_do_not_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The trainer's mean over ranks is undone for those that had something to do."""
    total = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    if batch.dp_size == 1:
        return total
    active = _added(int(batch.rank_tokens > 0), batch.dp_group, losses.device)
    return total * active / batch.dp_size


def at_least_one_token_a_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each rank's count is floored, then counts are added up."""
    tokens = batch.num_tokens
    if batch.dp_size > 1:
        tokens = _added(max(batch.rank_tokens, 1), batch.dp_group, losses.device)
    return kept(losses, batch).sum() / max(tokens, 1)


def at_least_one_token_in_all(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = batch.num_tokens
    if batch.dp_size > 1:
        tokens = _added(batch.rank_tokens, batch.dp_group, losses.device)
    if tokens == 0:
        return kept(losses, batch).sum() * 0.0
    return kept(losses, batch).sum() / tokens


def logit_on_the_previous_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The first token of a later piece was predicted on the rank before, which has its loss."""
    found = []
    for row, places in zip(rows(losses, batch), batch.local_positions, strict=True):
        later = batch.cp_kind == "contiguous" and len(places) > 0 and int(places[0]) > 0
        found.append((row[1:] if later else row).sum())
    return _mean(torch.stack(found), batch)


def every_rank_reports_the_sum(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each rank shows the loss of all, with the gradient of its own."""
    total = kept(losses, batch).sum() / batch.num_rollouts
    if batch.dp_size == 1:
        return total
    shown = total.detach().clone()
    dist.all_reduce(shown, group=batch.dp_group)
    return total + (shown - total.detach())


def last_of_an_odd_number_is_a_dummy(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where samples do not divide by the ranks, the last one is what the sampler added."""
    found = []
    for place, row in zip(batch.samples, rows(losses, batch), strict=True):
        added = batch.num_samples % batch.dp_size and place == batch.num_samples - 1
        found.append(row.sum() * 0.0 if added else row.sum())
    return torch.stack(found).sum() / batch.num_rollouts
