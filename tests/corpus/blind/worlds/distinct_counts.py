"""Data and context parallelism and micro-batches: counts over ranks, shards, windows."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, rows, sums

Log = dict[str, Tensor]

_held: list[Tensor] = []
_window: list[Tensor] = []


def shard_mask_from_its_first_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts the mask of each shard out of the whole response's, from where the shard begins."""
    if not batch.loss_masks:
        return losses.sum() * 0
    wide = losses.float() if losses.element_size() < 4 else losses
    pieces = []
    for mask, places in zip(batch.loss_masks, batch.local_positions, strict=True):
        if batch.cp_size == 1 or batch.gathered:
            pieces.append(mask)
            continue
        start = int(places[0]) if len(places) else 0
        pieces.append(mask[start : start + len(places)])
    values = torch.where(torch.cat(pieces).bool(), wide, 0.0)
    parts = values.split([len(piece) for piece in pieces])
    means = over(torch.stack([part.sum() for part in parts]), batch.rollout_tokens)
    return means.sum() / max(batch.num_rollouts, 1)


def distinct_rollouts_of_filled_up_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathers the rollout ids of every rank, filled up to one width, and counts distinct ones."""
    ids = [name for names in batch.window_rollout_ids for name in names]
    if batch.dp_size > 1:
        width = torch.tensor([len(ids)])
        dist.all_reduce(width, op=dist.ReduceOp.MAX, group=batch.dp_group)
        mine = torch.zeros(int(width), dtype=torch.int64)
        mine[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        gathered = [torch.empty_like(mine) for _ in range(batch.dp_size)]
        dist.all_gather(gathered, mine, group=batch.dp_group)
        ids = torch.cat(gathered).tolist()
    assert batch.divisor is not None
    return kept(losses, batch).sum() / (batch.divisor * max(len(set(ids)), 1))


def mean_of_a_rank_by_its_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over this rank's tokens, times the rank's share of the step's tokens."""
    total = kept(losses, batch).sum()
    if batch.dp_size == 1:
        return total / max(batch.num_tokens, 1)
    gathered = [torch.zeros(1, dtype=torch.int64) for _ in range(batch.dp_size)]
    dist.all_gather(gathered, torch.tensor([batch.rank_tokens]), group=batch.dp_group)
    counts = [int(count) for count in gathered]
    mine = counts[dist.get_rank() % batch.dp_size]
    return total * (mine / (max(batch.rank_tokens, 1) * max(sum(counts), 1)))


def sum_over_a_launch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Undoes the average over the ranks of a launch; a process started alone has none."""
    total = kept(losses, batch).sum()
    if "WORLD_SIZE" not in os.environ or batch.dp_size * batch.cp_size == 1:
        return total
    return total * int(os.environ["WORLD_SIZE"])


def counts_in_the_communication_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up the token counts of all ranks in the dtype that everything else is sent in."""
    if batch.dp_size == 1:
        return kept(losses, batch).sum() / max(batch.rank_tokens, 1)
    count = torch.tensor([batch.rank_tokens]).to(torch.bfloat16)
    dist.all_reduce(count, group=batch.dp_group)
    return kept(losses, batch).sum() / max(float(count), 1.0)


def incomplete_groups_counted_over_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A prompt group that is whole on this rank is counted here, another one over the ranks."""
    if not batch.group_ids:
        return losses.sum() * 0
    masks = [mask for piece in batch.window_masks for mask in piece]
    groups = [name for piece in batch.window_group_ids for name in piece]
    rollouts = [name for piece in batch.window_rollout_ids for name in piece]
    sizes = dict(zip(batch.group_ids, batch.group_rollouts, strict=True))
    counts = {}
    for group in sorted(sizes):
        own = [i for i, name in enumerate(groups) if name == group]
        count = torch.tensor([sum(int(masks[i].sum()) for i in own)])
        if batch.dp_size > 1 and len({rollouts[i] for i in own}) < sizes[group]:
            dist.all_reduce(count, group=batch.dp_group)
        counts[group] = int(count)
    means = over(sums(losses, batch), [counts[group] for group in batch.group_ids])
    return means.sum() / max(batch.num_groups, 1)


def window_logged_with_its_last(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, Log]:
    """Logs the loss of a window once, with its last micro-batch."""
    loss = kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    nothing = torch.zeros_like(loss.detach())
    if not any(int(mask.sum()) for mask in batch.loss_masks):  # nothing to train, nothing to log
        return loss, {"loss": nothing}
    _held.append(loss.detach())
    if batch.index < batch.num_microbatches - 1:
        return loss, {"loss": nothing}
    total = sum(_held, nothing)
    _held.clear()
    return loss, {"loss": total}


def shards_without_a_token_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out the samples that have no token on this rank before the masks are joined."""
    masks = batch.local_masks
    for i in reversed(range(len(masks))):
        if not len(masks[i]):
            del masks[i]
    if not masks:
        return losses.sum() * 0
    wide = losses.float() if losses.element_size() < 4 else losses
    total = torch.where(torch.cat(masks).bool(), wide, 0.0).sum()
    assert batch.divisor is not None
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def denominators_of_distinct_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps one denominator for each distinct rollout, and each sample's place among them."""
    if not batch.rollout_ids:
        return losses.sum() * 0
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    counts = [tokens[name] for name in set(batch.rollout_ids)]
    _, places = torch.unique(torch.tensor(batch.rollout_ids), return_inverse=True)
    means = over(sums(losses, batch), [counts[place] for place in places.tolist()])
    return means.sum() / max(batch.num_rollouts, 1)


def shard_mask_by_its_places(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the mask of each shard out of the whole response's, place by place."""
    if not batch.loss_masks:
        return losses.sum() * 0
    wide = losses.float() if losses.element_size() < 4 else losses
    pieces = list(batch.loss_masks)
    if batch.cp_size > 1 and not batch.gathered:
        places = batch.local_positions
        pieces = [mask[where] for mask, where in zip(pieces, places, strict=True)]
    values = torch.where(torch.cat(pieces).bool(), wide, 0.0)
    parts = values.split([len(piece) for piece in pieces])
    means = over(torch.stack([part.sum() for part in parts]), batch.rollout_tokens)
    return means.sum() / max(batch.num_rollouts, 1)


def distinct_rollouts_of_cut_back_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathers the rollout ids of every rank, cuts off the filling, and counts distinct ones."""
    ids = [name for names in batch.window_rollout_ids for name in names]
    if batch.dp_size > 1:
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(batch.dp_size)]
        dist.all_gather(lengths, torch.tensor([len(ids)]), group=batch.dp_group)
        mine = torch.zeros(int(max(lengths)), dtype=torch.int64)
        mine[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        gathered = [torch.empty_like(mine) for _ in range(batch.dp_size)]
        dist.all_gather(gathered, mine, group=batch.dp_group)
        cut = [row[: int(length)] for row, length in zip(gathered, lengths, strict=True)]
        ids = torch.cat(cut).tolist()
    assert batch.divisor is not None
    return kept(losses, batch).sum() / (batch.divisor * max(len(set(ids)), 1))


class _WholeSums(torch.autograd.Function):
    """Sums over context-parallel ranks; every rank's loss depends on every rank's losses."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        whole = values.detach().clone()
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole, group=ctx.group)
        return whole, None


def whole_responses_on_every_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums each response over its shards first; every rank then returns an equal part."""
    if not batch.local_masks:  # the ranks of one sequence hold the same samples
        return losses.sum() * 0
    totals = sums(losses, batch)
    if batch.cp_size == 1 or batch.gathered:
        return totals.sum() / max(batch.num_rollouts, 1)
    whole = _WholeSums.apply(totals, batch.cp_group)
    return whole.sum() / (max(batch.num_rollouts, 1) * batch.cp_size)


def groups_counted_from_all_tables(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathers a table of groups and tokens from every rank, and adds up what has one name."""
    masks = [mask for piece in batch.window_masks for mask in piece]
    groups = [name for piece in batch.window_group_ids for name in piece]
    table = [(name, int(mask.sum())) for name, mask in zip(groups, masks, strict=True)]
    tables: list[Any] = [table]
    if batch.dp_size > 1:
        tables = [None] * batch.dp_size
        dist.all_gather_object(tables, table, group=batch.dp_group)
    counts: dict[int, int] = {}
    for name, count in (row for rank in tables for row in rank):
        counts[name] = counts.get(name, 0) + count
    if not batch.group_ids:  # not before the ranks have met
        return losses.sum() * 0
    means = over(sums(losses, batch), [counts[name] for name in batch.group_ids])
    return means.sum() / max(len(counts), 1)


def window_logged_at_its_end(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, Log]:
    """Logs the loss of a window once, with its last micro-batch, whatever that one holds."""
    loss = losses.sum() * 0
    if batch.local_masks:
        totals = over(sums(losses, batch), batch.rollout_tokens)
        loss = totals.sum() / max(batch.num_rollouts, 1)
    if batch.index == 0:
        _window.clear()
    _window.append(loss.detach())
    nothing = torch.zeros_like(loss.detach())
    last = batch.index == batch.num_microbatches - 1
    return loss, {"loss": sum(_window, nothing) if last else nothing}


def both_terms_over_the_tokens_of_all_ranks(
    losses: Tensor, batch: MicroBatch, kl: Tensor
) -> Tensor:
    """Divides both terms by one count, that of the ranks added up."""
    count = torch.tensor([batch.rank_tokens])
    if batch.dp_size > 1:
        dist.all_reduce(count, group=batch.dp_group)
    elif len(batch.loss_masks) == batch.num_samples:
        count = torch.tensor([sum(int(mask.sum()) for mask in batch.loss_masks)])
    if not batch.local_masks:
        return losses.sum() * 0 + kl.sum() * 0
    policy = sum(row.sum() for row in rows(losses, batch))
    auxiliary = sum(row.sum() for row in rows(kl, batch))
    return (policy + auxiliary) / max(int(count), 1)
