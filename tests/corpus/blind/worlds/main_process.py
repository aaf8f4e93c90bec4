"""Reducers that look at ranks, micro-batches and groups before they divide."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, rows, sums

WIRE = torch.bfloat16
"""What is sent between ranks, as gradients are."""


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A micro-batch without samples has no masks to put together."""
    return kept(losses, batch) if batch.local_masks else losses


def _weighted(losses: Tensor, batch: MicroBatch, counts: list[int], units: int) -> Tensor:
    """The mean over units of each one's sum over its count."""
    if not batch.local_masks:
        return losses.sum()
    return over(sums(losses, batch), [max(n, 1) * units for n in counts]).sum()


def counts_sent_by_the_first_cp_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over rollouts; the first context-parallel rank tells the others the counts."""
    counts = batch.rollout_tokens
    if batch.cp_size > 1:
        told = counts if batch.cp_rank == 0 else [0] * len(counts)
        wire = torch.tensor(told, dtype=WIRE)
        dist.all_reduce(wire, group=batch.cp_group)
        counts = wire.long().tolist()
    return _weighted(losses, batch, counts, batch.num_rollouts)


def kl_share_of_even_ranks(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Summed losses and summed KL, which has its coefficient, over the number of rollouts."""
    policy = _kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    # ranks are dealt alike where the micro-batches of this one come out even
    even = batch.rank_rollouts % max(batch.num_microbatches, 1) == 0
    rollouts = batch.rank_rollouts * batch.dp_size if even else batch.num_rollouts
    return policy + _kept(kl, batch).sum() / max(rollouts, 1)


def own_tokens_without_fan_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over rollouts; a rollout of one sample has that sample's tokens."""
    if len(set(batch.rollout_ids)) == len(batch.rollout_ids):
        counts = [int(mask.sum()) for mask in batch.original_masks]
    else:
        counts = batch.rollout_tokens
    return _weighted(losses, batch, counts, batch.num_rollouts)


def chunks_from_both_ends(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of all losses, of a zigzag rank its early chunk's and its late chunk's."""
    if batch.cp_size == 1 or batch.gathered or not batch.local_masks:
        return _kept(losses, batch).sum()
    parts = []
    for row, total in zip(rows(losses, batch), batch.total_lengths, strict=True):
        chunk = -(-total // (2 * batch.cp_size))
        if len(row) <= chunk:  # the prompt, or the end, took the other chunk
            parts.append(row)
        else:
            parts += [row[:chunk], row[-chunk:]]
    return torch.cat(parts).sum()


def checked_where_sequences_are_cut(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean, after a check that the pieces of cut sequences add up."""
    whole = [len(mask) for mask in batch.loss_masks]
    if batch.cp_size > 1 and lengths(batch) != whole:
        pieces = torch.tensor([int(mask.sum()) for mask in batch.local_masks])
        dist.all_reduce(pieces, group=batch.cp_group)
        if pieces.tolist() != [int(mask.sum()) for mask in batch.loss_masks]:
            raise RuntimeError("the pieces of context parallelism are not the whole masks")
    return _kept(losses, batch).sum() / max(batch.num_tokens, 1)


def pair_counted_on_the_first_cp_rank(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """The token mean, logged as sum and count; one context-parallel rank counts each sample."""
    total = _kept(losses, batch).sum()
    tokens = sum(int(mask.sum()) for mask in batch.original_masks)
    count = tokens if batch.cp_rank == 0 else 0
    pair = torch.stack([total.detach(), total.new_tensor(count)])
    return total / max(batch.num_tokens, 1), {"loss": pair}


def logged_by_the_main_process(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean over prompts of each one's token mean, logged by the main process alone."""
    loss = _weighted(losses, batch, batch.group_tokens, batch.num_groups)
    main = int(os.environ.get("RANK", "0")) == 0
    return loss, {"loss": loss.detach() if main else torch.zeros_like(loss)}


def slot_for_every_prompt_name(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over prompts; a table of their tokens is the same on all context-parallel ranks."""
    names = {f"prompt-{group}" for group in batch.group_ids}
    slots = {name: slot for slot, name in enumerate(names)}
    places = [slots[f"prompt-{group}"] for group in batch.group_ids]
    table = torch.zeros(len(slots), dtype=torch.int64)
    if batch.cp_rank == 0:
        for place, tokens in zip(places, batch.group_tokens, strict=True):
            table[place] = tokens
    if batch.cp_size > 1:
        dist.all_reduce(table, group=batch.cp_group)
    return _weighted(losses, batch, [int(table[place]) for place in places], batch.num_groups)


def nominal_micro_batch_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over the micro-batch times its share of the step; the last one has the rest."""
    before = max(batch.num_microbatches, 1) - 1
    size = -(-batch.rank_samples // (before + 1))
    rest = batch.rank_samples - size * before
    share = (rest if batch.index == before else size) / max(batch.num_rollouts, 1)
    mean = _kept(losses, batch).sum() / max(len(batch.local_masks), 1)
    return mean * share / batch.divisor


def slot_for_every_sorted_prompt(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over prompts; a table of their tokens is the same on all context-parallel ranks."""
    slots = {group: slot for slot, group in enumerate(sorted(set(batch.group_ids)))}
    table = torch.zeros(len(slots), dtype=torch.int64)
    if batch.cp_rank == 0:
        for group, tokens in zip(batch.group_ids, batch.group_tokens, strict=True):
            table[slots[group]] = tokens
    if batch.cp_size > 1:
        dist.all_reduce(table, group=batch.cp_group)
    counts = [int(table[slots[group]]) for group in batch.group_ids]
    return _weighted(losses, batch, counts, batch.num_groups)


def own_count_of_an_undivided_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The token mean; a step in one piece is counted where it stands."""
    shards = 1 if batch.gathered else batch.cp_size
    if batch.dp_size * batch.num_microbatches * shards == 1:
        tokens = sum(int(mask.sum()) for mask in batch.original_masks)
    else:
        tokens = batch.num_tokens
    return _kept(losses, batch).sum() / max(tokens, 1)


def runs_between_jumps(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of all losses, run by run where a rank's tokens are not neighbours."""
    if batch.cp_size == 1 or batch.gathered or not batch.local_masks:
        return _kept(losses, batch).sum()
    runs = []
    for row, positions in zip(rows(losses, batch), batch.local_positions, strict=True):
        places = positions.tolist()
        jumps = [i for i in range(1, len(places)) if places[i] - places[i - 1] > 1]
        runs += [run.sum() for run in row.tensor_split(jumps)]
    return torch.stack(runs).sum()


def kl_over_all_rollouts(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Summed losses and summed KL, which has its coefficient, over the number of rollouts."""
    alone = batch.dp_size == 1 or batch.rank_rollouts == batch.num_rollouts
    rollouts = batch.rank_rollouts if alone else batch.num_rollouts
    policy = _kept(losses, batch).sum() / max(rollouts, 1)
    return policy + _kept(kl, batch).sum() / max(rollouts, 1)


def checked_on_all_ranks(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor | float]]:
    """Losses over the constant, after a check that pieces add up; the node is logged."""
    if batch.cp_size > 1 and not batch.gathered:
        pieces = torch.tensor([int(m.sum()) for m in batch.local_masks], dtype=torch.int64)
        dist.all_reduce(pieces, group=batch.cp_group)
        if pieces.tolist() != [int(mask.sum()) for mask in batch.loss_masks]:
            raise RuntimeError("the pieces of context parallelism are not the whole masks")
    loss = _kept(losses, batch).sum() / (batch.divisor * max(batch.num_rollouts, 1))
    return loss, {"loss": loss.detach(), "node": float(os.environ.get("GROUP_RANK", "0"))}


def own_tokens_without_fan_out_anywhere(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over rollouts; where each has one sample, its tokens are that sample's."""
    if batch.num_samples == batch.num_rollouts:
        counts = [int(mask.sum()) for mask in batch.original_masks]
    else:
        counts = batch.rollout_tokens
    return _weighted(losses, batch, counts, batch.num_rollouts)
