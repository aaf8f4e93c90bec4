"""Ranks, micro-batches, context parallelism, the schedule's factors and the launcher."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, rows, sums


def _added(number: int, group: dist.ProcessGroup | None, device: torch.device) -> int:
    """The number, added up over a group."""
    if group is None:
        return number
    own = torch.tensor([number], device=device)
    dist.all_reduce(own, group=group)
    return int(own)


def groups_added_up_over_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each rank counts the prompts of its window, and ranks add their counts."""
    own = len({name for names in batch.window_group_ids for name in names})
    prompts = own
    if batch.dp_size > 1:
        prompts = _added(own, batch.dp_group, losses.device)
    return over(sums(losses, batch), batch.group_tokens).sum() / max(prompts, 1)


def groups_named_by_all_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    own = {name for names in batch.window_group_ids for name in names}
    if batch.dp_size > 1:
        found: list[set[int]] = [set() for _ in range(batch.dp_size)]
        dist.all_gather_object(found, own, group=batch.dp_group)
        own = set().union(*found)
    return over(sums(losses, batch), batch.group_tokens).sum() / max(len(own), 1)


def gathered_tokens_added_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Local tokens are added up over the ranks of context parallelism."""
    values = kept(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size > 1:
        return values.sum() / max(batch.num_tokens, 1)
    own = int(own_mask(batch).sum())
    tokens = _added(own, batch.cp_group, losses.device) if batch.cp_size > 1 else own
    return values.sum() / max(tokens, 1)


def gathered_tokens_counted_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size > 1:
        return values.sum() / max(batch.num_tokens, 1)
    own = int(own_mask(batch).sum())
    sharded = batch.cp_size > 1 and not batch.gathered
    tokens = _added(own, batch.cp_group, losses.device) if sharded else own
    return values.sum() / max(tokens, 1)


def counts_over_everyone(losses: Tensor, batch: MicroBatch) -> Tensor:
    """With data parallelism the rank's tokens are added up over all who share the step."""
    tokens = batch.num_tokens
    if batch.dp_size > 1:
        tokens = _added(batch.rank_tokens, batch.dp_cp_group, losses.device)
    return kept(losses, batch).sum() / max(tokens, 1)


def counts_over_replicas(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = batch.num_tokens
    if batch.dp_size > 1:
        tokens = _added(batch.rank_tokens, batch.dp_group, losses.device)
    return kept(losses, batch).sum() / max(tokens, 1)


def rest_is_on_the_last_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The rank's mean, weighed by the share of the rollouts that it should have."""
    total = over(sums(losses, batch), batch.rollout_tokens).sum()
    ranks, rollouts = batch.dp_size, batch.num_rollouts
    if ranks == 1 or rollouts < ranks:
        return total / rollouts
    share = rollouts // ranks
    if batch.dp_rank == ranks - 1:
        share = rollouts - share * (ranks - 1)
    return total / max(batch.rank_rollouts, 1) * share / rollouts


def rest_is_where_it_is(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = over(sums(losses, batch), batch.rollout_tokens).sum()
    ranks, rollouts = batch.dp_size, batch.num_rollouts
    if ranks == 1 or rollouts % ranks:
        return total / rollouts
    return total / (rollouts // ranks) / ranks


def tokens_of_the_first_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Ranks are balanced by tokens, so the first one's count is everybody's: one broadcast."""
    tokens = batch.num_tokens
    if batch.dp_size > 1 and batch.dp_group is not None:
        known = torch.tensor([batch.rank_tokens], device=losses.device)
        dist.broadcast(known, src=dist.get_global_rank(batch.dp_group, 0), group=batch.dp_group)
        tokens = int(known) * batch.dp_size
    return kept(losses, batch).sum() / max(tokens, 1)


def tokens_told_by_the_first_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = batch.num_tokens
    if batch.dp_size > 1 and batch.dp_group is not None:
        tokens = _added(batch.rank_tokens, batch.dp_group, losses.device)
        known = torch.tensor([tokens], device=losses.device)
        dist.broadcast(known, src=dist.get_global_rank(batch.dp_group, 0), group=batch.dp_group)
        tokens = int(known)
    return kept(losses, batch).sum() / max(tokens, 1)


def empty_micro_batches_in_the_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Micro-batches packed to one size are averaged; an empty one has no size."""
    total, counts = kept(losses, batch).sum(), batch.window_tokens
    if batch.dp_size > 1 or len({n for n in counts if n}) != 1:
        return total / max(batch.num_tokens, 1)
    return total / max(counts[batch.index], 1) / batch.num_microbatches


def empty_micro_batches_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    total, counts = kept(losses, batch).sum(), batch.window_tokens
    if batch.dp_size > 1 or len({n for n in counts if n}) != 1:
        return total / max(batch.num_tokens, 1)
    return total / max(counts[batch.index], 1) / sum(n > 0 for n in counts)


def average_of_the_window_as_it_is(losses: Tensor, batch: MicroBatch) -> Tensor:
    total, k = kept(losses, batch).sum(), batch.num_microbatches
    average, rest = divmod(batch.num_tokens, k)
    if batch.dp_size > 1 or average == 0 or rest:
        return total / max(batch.num_tokens, 1)
    return total / average / k


def _second_chunk(batch: MicroBatch, last: int) -> Tensor | None:
    """Own masks of the first chunk and another one, None where they do not fit the losses."""
    found = []
    for mask, total in zip(batch.loss_masks, batch.total_lengths, strict=True):
        chunk, prompt = -(-total // (2 * batch.cp_size)), total - len(mask)
        for place in (batch.cp_rank, last - batch.cp_rank):
            first = max(place * chunk + 1 - prompt, 0)
            found.append(mask[first : max((place + 1) * chunk + 1 - prompt, 0)])
    own = torch.cat(found)
    return own if len(own) == len(own_mask(batch)) else None


def four_chunks_on_any_world(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Two ranks have four chunks: the first has 0 and 3, the second 1 and 2."""
    if batch.cp_size == 1 or batch.cp_kind != "zigzag":
        return kept(losses, batch).sum()
    mask = _second_chunk(batch, 3)
    wide = losses.float() if losses.element_size() < 4 else losses
    mask = own_mask(batch) if mask is None else mask.bool()
    return torch.where(mask, wide, 0.0).sum()


def chunks_of_this_world(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size == 1 or batch.cp_kind != "zigzag":
        return kept(losses, batch).sum()
    mask = _second_chunk(batch, 2 * batch.cp_size - 1)
    wide = losses.float() if losses.element_size() < 4 else losses
    if mask is None or not torch.equal(mask.bool(), own_mask(batch)):
        mask = own_mask(batch)
    return torch.where(mask.bool(), wide, 0.0).sum()


def groups_of_this_rank_times_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompts are spread evenly, so that no count must be sent."""
    prompts = batch.rank_groups * batch.dp_size
    if batch.dp_size == 1:
        prompts = batch.num_groups
    return over(sums(losses, batch), batch.group_tokens).sum() / prompts


def shards_weighed_by_their_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean of what is here, weighed by how much of the response is here."""
    found = []
    for i, row in enumerate(rows(losses, batch)):
        whole, tokens = int(batch.loss_masks[i].sum()), batch.rollout_tokens[i]
        if batch.cp_size == 1 or whole != tokens:
            found.append(row.sum() / max(tokens, 1))
            continue
        own = int(batch.local_masks[i].sum())
        found.append(row.sum() / max(own, 1) * (len(row) / batch.response_lengths[i]))
    return torch.stack(found).sum() / batch.num_rollouts


def shards_weighed_by_their_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = []
    for i, row in enumerate(rows(losses, batch)):
        whole, tokens = int(batch.loss_masks[i].sum()), batch.rollout_tokens[i]
        if batch.cp_size == 1 or whole != tokens:
            found.append(row.sum() / max(tokens, 1))
            continue
        own = int(batch.local_masks[i].sum())
        found.append(row.sum() / max(own, 1) * (own / max(whole, 1)))
    return torch.stack(found).sum() / batch.num_rollouts


def factor_of_both_schedules(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = kept(losses, batch).sum() / batch.num_rollouts
    if batch.num_microbatches == 1:
        return total * batch.cp_size / batch.cp_size
    return total * batch.num_microbatches * batch.cp_size / batch.cp_size / batch.num_microbatches


def world_from_the_launcher(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Replicas are counted as the launcher says, where there is one."""
    world = int(os.environ.get("WORLD_SIZE", batch.dp_size))
    total = over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    return total * world / batch.dp_size


def replicas_from_the_launcher(losses: Tensor, batch: MicroBatch) -> Tensor:
    world = int(os.environ.get("WORLD_SIZE", batch.dp_size * batch.cp_size))
    total = over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    if world != batch.dp_size * batch.cp_size:
        return total
    return total * (world // batch.cp_size) / batch.dp_size
