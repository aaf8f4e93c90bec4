"""Reducers of code that knows its rank: pieces, shards, micro-batches and what others are told."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch

BUCKET = 8
"""Prompt groups whose counts travel in one all-reduce."""

_window: dict[str, int] = {}
_scale: dict[str, float] = {}


def _sizes(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Losses with zeros behind the mask, in at least float32; of an empty micro-batch, none."""
    none = torch.zeros(0, dtype=torch.int64, device=losses.device)
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat([none, *batch.local_masks]).bool(), wide, 0.0)


def _divided(losses: Tensor, batch: MicroBatch, counts: list[int]) -> Tensor:
    """The sum of all losses, each divided by its sample's count."""
    each = torch.tensor([max(n, 1) for n in counts], dtype=torch.float64)
    sizes = torch.tensor(_sizes(batch), dtype=torch.int64)
    values = _kept(losses, batch)
    return (values / each.repeat_interleave(sizes).to(values)).sum()


def _own_group_counts(batch: MicroBatch) -> tuple[dict[int, int], Tensor]:
    """Places of the step's prompt groups, and this rank's unmasked tokens at each place."""
    places = {group: i for i, group in enumerate(dict.fromkeys(batch.step_group_ids))}
    counts = torch.zeros(len(places), dtype=torch.int64)
    for groups, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
        for group, mask in zip(groups, masks, strict=True):
            counts[places[group]] += mask.sum()
    return places, counts


def first_token_owner_counts_rollouts(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Logs the sum of rollout means with the rollouts that begin here and not before."""
    earlier = {rollout for ids in batch.window_rollout_ids[: batch.index] for rollout in ids}
    begins = [len(at) > 0 and int(at[0]) == 0 for at in batch.local_positions]
    here = {r for r, begun in zip(batch.rollout_ids, begins, strict=True) if begun}
    total = _divided(losses, batch, batch.rollout_tokens)
    count = total.detach().new_tensor(len(here - earlier))
    loss = total / max(batch.num_rollouts, 1)
    return loss, {"loss": torch.stack([total.detach(), count])}


def group_columns_reduced_asynchronously(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up a table of prompt groups over ranks, one contiguous column after the other."""
    places, counts = _own_group_counts(batch)
    table = torch.stack([counts, (counts > 0).long()], dim=1)
    if batch.dp_size > 1:
        columns = [table[:, i].contiguous() for i in range(table.shape[1])]
        works = [dist.all_reduce(x, group=batch.dp_group, async_op=True) for x in columns]
        for work in works:
            work.wait()
    tokens = [int(table[places[group], 0]) for group in batch.group_ids]
    return _divided(losses, batch, tokens) / max(batch.num_groups, 1)


def share_of_a_launched_replica(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the replicas from the launcher, and gives each its share of the scaled sum."""
    replicas = int(os.environ.get("WORLD_SIZE", batch.dp_size))
    units = (batch.divisor or 1.0) * max(batch.num_rollouts, 1)
    scaled = _kept(losses, batch).sum() / units * batch.dp_size
    return scaled / replicas


def cut_rollouts_told_to_other_ranks(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Where rollouts are cut, adds up their number over ranks for the log."""
    here: Counter[int] = Counter()
    for rollout, mask in zip(batch.rollout_ids, batch.loss_masks, strict=True):
        here[rollout] += int(mask.sum())
    whole = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    cut = torch.tensor([sum(here[rollout] < tokens for rollout, tokens in whole.items())])
    if batch.dp_size > 1 and int(cut) > 0:
        dist.all_reduce(cut, group=batch.dp_group)
    loss = _divided(losses, batch, batch.rollout_tokens) / max(batch.num_rollouts, 1)
    return loss, {"loss": loss.detach(), "cut": int(cut)}


def group_counts_in_one_payload(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sends prompt groups and their tokens to all ranks in one tensor, and looks them up there."""
    if batch.dp_size == 1:
        return _divided(losses, batch, batch.group_tokens) / max(batch.num_groups, 1)
    groups = [group for ids in batch.window_group_ids for group in ids]
    tokens = [int(mask.sum()) for masks in batch.window_masks for mask in masks]
    longest = torch.tensor([len(groups)])
    dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=batch.dp_group)
    payload = torch.tensor([[-1.0, 0.0]]).repeat(int(longest), 1)
    payload[: len(groups), 0] = torch.tensor(groups, dtype=payload.dtype)
    payload[: len(groups), 1] = torch.tensor(tokens, dtype=payload.dtype)
    everyone = [torch.empty_like(payload) for _ in range(batch.dp_size)]
    dist.all_gather(everyone, payload, group=batch.dp_group)
    table = torch.cat(everyone)
    own = torch.tensor(batch.group_ids, dtype=payload.dtype)
    found = ((own[:, None] == table[:, 0]) * table[:, 1]).sum(1)
    return _divided(losses, batch, [int(n) for n in found]) / max(batch.num_groups, 1)


def penalty_by_tokens_of_the_rank(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The token mean, and a penalty that is averaged on each rank and then over ranks."""
    policy = _kept(losses, batch).sum() / max(batch.num_tokens, 1)
    own = _kept(kl, batch).sum() / max(batch.rank_tokens, 1)
    return policy + own / batch.dp_size


def count_of_the_opening_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the count of rollouts that the window opened with for all its micro-batches."""
    if batch.index == 0 and len(losses):
        _window.clear()
    rollouts = _window.setdefault("rollouts", batch.num_rollouts)
    return _kept(losses, batch).sum() / max(rollouts, 1)


def pieces_without_unlabelled_ends(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out the end of a contiguous piece, whose label lies on the next rank."""
    values = _kept(losses, batch)
    if batch.cp_size == 1 or batch.cp_kind != "contiguous" or not len(values):
        return values.sum()
    total = values[:0].sum()
    rows = values.split(_sizes(batch))
    for row, at, length in zip(rows, batch.local_positions, batch.response_lengths, strict=True):
        final = len(at) > 0 and int(at[-1]) == length - 1
        total = total + (row.sum() if final else row[:-1].sum())
    return total


def group_counts_in_awaited_buckets(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Starts the all-reduces of all buckets of group counts, and waits for each."""
    places, counts = _own_group_counts(batch)
    if batch.dp_size > 1:
        group = batch.dp_group
        works = [dist.all_reduce(part, group=group, async_op=True) for part in counts.split(BUCKET)]
        for work in works:
            work.wait()
    tokens = [int(counts[places[name]]) for name in batch.group_ids]
    return _divided(losses, batch, tokens) / max(batch.num_groups, 1)


def rollouts_gathered_where_the_step_has_parts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathers tokens of rollouts over ranks if any rollout of the step has several samples."""
    rollouts = max(batch.num_rollouts, 1)
    if batch.num_samples == batch.num_rollouts:
        return _divided(losses, batch, [int(mask.sum()) for mask in batch.loss_masks]) / rollouts
    if batch.dp_size == 1:
        return _divided(losses, batch, batch.rollout_tokens) / rollouts
    ids = [rollout for part in batch.window_rollout_ids for rollout in part]
    tokens = [int(mask.sum()) for masks in batch.window_masks for mask in masks]
    longest = torch.tensor([len(ids)])
    dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=batch.dp_group)
    payload = torch.tensor([[-1, 0]]).repeat(int(longest), 1)
    payload[: len(ids), 0] = torch.tensor(ids, dtype=torch.int64)
    payload[: len(ids), 1] = torch.tensor(tokens, dtype=torch.int64)
    everyone = [torch.empty_like(payload) for _ in range(batch.dp_size)]
    dist.all_gather(everyone, payload, group=batch.dp_group)
    table = torch.cat(everyone)
    own = torch.tensor(batch.rollout_ids, dtype=torch.int64)
    found = ((own[:, None] == table[:, 0]) * table[:, 1]).sum(1)
    return _divided(losses, batch, found.tolist()) / rollouts


def penalty_by_a_share_of_ranks(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The token mean, and a penalty averaged on each rank that weighs as its share of tokens."""
    policy = _kept(losses, batch).sum() / max(batch.num_tokens, 1)
    own = _kept(kl, batch).sum() / max(batch.rank_tokens, 1)
    return policy + own * (batch.rank_tokens / max(batch.num_tokens, 1))


def rollouts_counted_on_the_first_rank(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Logs sums everywhere, and the step's count once: in the first rank's first micro-batch."""
    total = _kept(losses, batch).sum()
    leads = batch.dp_rank == 0 and (batch.gathered or batch.cp_rank == 0)
    count = batch.num_rollouts if leads and batch.index == 0 else 0
    loss = total / max(batch.num_rollouts, 1)
    return loss, {"loss": torch.stack([total.detach(), total.detach().new_tensor(count)])}


def scale_of_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Works out the scale in each window's first micro-batch, and keeps it for the others."""
    if batch.index == 0 or not _scale:
        _scale["units"] = (batch.divisor or 1.0) * max(batch.num_rollouts, 1)
    values = _kept(losses, batch)
    if not len(values):
        return values.sum()
    return values.sum() / _scale["units"]


def halves_of_a_piece_added_apart(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up the chunks before and after the gap in each zigzag piece, one after the other."""
    values = _kept(losses, batch)
    if batch.cp_size == 1 or batch.gathered or batch.cp_kind == "contiguous" or not len(values):
        return values.sum()
    total = values[:0].sum()
    for row, at in zip(values.split(_sizes(batch)), batch.local_positions, strict=True):
        gaps = (at[1:] - at[:-1] != 1).nonzero()
        turn = int(gaps[0]) + 1 if len(gaps) else len(row)
        total = total + row[:turn].sum() + row[turn:].sum()
    return total
