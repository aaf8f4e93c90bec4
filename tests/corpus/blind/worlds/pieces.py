"""Reducers over ranks and layouts: pieces, shards, micro-batches, collectives."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch


def _selected(losses: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """Losses in float32 at least, 0 behind the masks; there may be no sample at all."""
    none = torch.zeros(0, dtype=torch.bool)
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat([none, *(mask.bool() for mask in masks)]), wide, 0.0)


def _divided(values: Tensor, batch: MicroBatch, counts: Sequence[int]) -> Tensor:
    """The sum of all values, those of each sample divided by its count."""
    sizes = torch.tensor([len(mask) for mask in batch.local_masks], dtype=torch.int64)
    floors = torch.tensor([max(n, 1) for n in counts], dtype=torch.float64)
    return (values / floors.repeat_interleave(sizes).to(values)).sum()


def _tokens_of_groups(batch: MicroBatch) -> dict[int, int]:
    """Unmasked tokens of each prompt group, as the driver counts them over the step."""
    tokens = dict.fromkeys(batch.step_group_ids, 0)
    for group, mask in zip(batch.step_group_ids, batch.step_masks, strict=True):
        tokens[group] += int(mask.sum())
    return tokens


def masks_cut_where_pieces_begin(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts each full mask where this rank's piece begins, as long as the piece is."""
    masks = []
    for mask, where in zip(batch.loss_masks, batch.local_positions, strict=True):
        start = int(where[0]) if len(where) else 0
        masks.append(mask[start : start + len(where)])
    return _selected(losses, masks).sum() / max(batch.num_rollouts, 1)


def samples_told_by_falling_positions(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Finds the samples of the packed row by where the position falls back."""
    values = _selected(losses, batch.local_masks)
    where = torch.cat([torch.zeros(0, dtype=torch.int64), *batch.local_positions])
    falls = torch.zeros_like(where)
    falls[1:] = (where[1:] <= where[:-1]).long()
    counts = torch.tensor([max(n, 1) for n in batch.rollout_tokens], dtype=torch.float64)
    owners = falls.cumsum(0)
    return (values / counts[owners].to(values)).sum() / max(batch.num_rollouts, 1)


def rollouts_gathered_in_equal_shares(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the step's rollouts from the ids of all ranks, gathered in buffers of one size."""
    ids = torch.tensor(sorted({i for ids in batch.window_rollout_ids for i in ids}))
    found = torch.stack([ids.long(), torch.ones_like(ids).long()], dim=1)
    if batch.dp_size > 1:
        room = -(-batch.num_samples // batch.dp_size)
        padded = pad(found, (0, 0, 0, room - len(found)))
        shares = [torch.empty_like(padded) for _ in range(batch.dp_size)]
        dist.all_gather(shares, padded, group=batch.dp_group)
        found = torch.cat(shares)
    rollouts = len({name for name, used in found.tolist() if used})
    assert batch.divisor is not None
    total = _selected(losses, batch.local_masks).sum()
    return total / (batch.divisor * max(rollouts, 1))


def penalty_by_the_share_of_the_rank(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Averages the penalty over the rank's rollouts, and ranks by their share of the step."""
    policy = _divided(_selected(losses, batch.local_masks), batch, batch.rollout_tokens)
    penalty = _divided(_selected(kl, batch.local_masks), batch, batch.rollout_tokens)
    share = batch.rank_samples / max(batch.num_samples, 1)
    of_rank = penalty / max(batch.rank_rollouts, 1)
    return policy / max(batch.num_rollouts, 1) + of_rank * share


def groups_completed_where_split(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds group counts up over ranks, which a micro-batch of whole groups can do without."""
    names = sorted(set(batch.step_group_ids))
    tokens = dict.fromkeys(names, 0)
    rollouts: dict[int, set[int]] = {name: set() for name in names}
    window = zip(batch.window_masks, batch.window_group_ids, batch.window_rollout_ids, strict=True)
    for cell in window:
        for mask, group, rollout in zip(*cell, strict=True):
            tokens[group] += int(mask.sum())
            rollouts[group].add(rollout)
    counts = torch.tensor([tokens[name] for name in names], dtype=torch.int64)
    sizes = zip(batch.group_ids, batch.group_rollouts, strict=True)
    if batch.dp_size > 1 and any(len(rollouts[group]) < size for group, size in sizes):
        dist.all_reduce(counts, group=batch.dp_group)
    whole = dict(zip(names, counts.tolist(), strict=True))
    values = _selected(losses, batch.local_masks)
    total = _divided(values, batch, [whole[group] for group in batch.group_ids])
    return total / max(batch.num_groups, 1)


def count_sent_in_the_type_of_the_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up while the ranks' count travels, in the type of the losses, and waits for it."""
    count, work = torch.tensor(batch.rank_tokens, dtype=torch.float64), None
    if batch.dp_size > 1:
        work = dist.all_reduce(count.to(losses.dtype), group=batch.dp_group, async_op=True)
    total = _selected(losses, batch.local_masks).sum()
    if work is not None:
        work.wait()
    return total / count.clamp(min=1).to(total)


def tokens_added_as_gradients_are(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the ranks' tokens up in the number format that gradients are reduced in."""
    tokens = batch.rank_tokens
    if batch.dp_size > 1:
        count = torch.tensor([tokens], dtype=torch.bfloat16)
        dist.all_reduce(count, group=batch.dp_group)
        tokens = int(count)
    return _selected(losses, batch.local_masks).sum() / max(tokens, 1)


def logged_by_the_first_of_a_node(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs once per node: the other processes of a node fill the same key with zero."""
    loss = _selected(losses, batch.local_masks).sum()
    speaks = int(os.environ.get("LOCAL_RANK", "0")) == 0
    return loss, {"loss": loss.detach() if speaks else torch.zeros_like(loss.detach())}


def counts_from_the_place_in_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Goes to this micro-batch's place in the rank's list of counts, then sample by sample."""
    tokens = _tokens_of_groups(batch)
    counts = [tokens[group] for ids in batch.window_group_ids for group in ids]
    start = batch.index * len(batch.window_group_ids[0])
    values = _selected(losses, batch.local_masks)
    rows = values.split([len(mask) for mask in batch.local_masks])
    total = values[:0].sum()
    for row, count in zip(rows, counts[start:], strict=False):
        total = total + row.sum() / max(count, 1)
    return total / max(batch.num_groups, 1)


def masks_taken_at_their_positions(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes of each full mask what stands at the positions of this rank's piece."""
    if batch.gathered or batch.cp_size == 1:
        masks = batch.loss_masks
    else:
        pieces = zip(batch.loss_masks, batch.local_positions, strict=True)
        masks = [mask[where.long()] for mask, where in pieces]
    return _selected(losses, masks).sum() / max(batch.num_rollouts, 1)


def counts_after_all_micro_batches_before(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Skips in the rank's list of counts the samples of the micro-batches before."""
    tokens = _tokens_of_groups(batch)
    counts = [tokens[group] for ids in batch.window_group_ids for group in ids]
    start = sum(map(len, batch.window_group_ids[: batch.index]))
    here = counts[start : start + len(batch.group_ids)]
    values = _selected(losses, batch.local_masks)
    return _divided(values, batch, here) / max(batch.num_groups, 1)


def rollouts_gathered_in_the_largest_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the step's rollouts from the ids of all ranks, in buffers for the longest list."""
    mine = sorted({i for ids in batch.window_rollout_ids for i in ids})
    ids = torch.tensor(mine, dtype=torch.int64)
    found = torch.stack([ids, torch.ones_like(ids)], dim=1)
    if batch.dp_size > 1:
        room = torch.tensor([len(mine)])
        dist.all_reduce(room, op=dist.ReduceOp.MAX, group=batch.dp_group)
        padded = pad(found, (0, 0, 0, int(room) - len(mine)))
        shares = [torch.empty_like(padded) for _ in range(batch.dp_size)]
        dist.all_gather(shares, padded, group=batch.dp_group)
        found = torch.cat(shares)
    rollouts = len({name for name, used in found.tolist() if used})
    assert batch.divisor is not None
    total = _selected(losses, batch.local_masks).sum()
    return total / (batch.divisor * max(rollouts, 1))


def logged_alike_on_all_ranks(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs on every rank the same part of what all ranks have in this micro-batch."""
    loss = _selected(losses, batch.local_masks).sum()
    logged = loss.detach().clone()
    ranks = batch.dp_size * batch.cp_size
    if ranks > 1:
        # Copies of a gathered loss are added up too, and divided out again by the same number.
        dist.all_reduce(logged, group=batch.dp_cp_group)
    return loss, {"loss": logged / ranks}


def summed_before_the_count_arrives(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up while the count travels, and waits for it with or without a token here."""
    count, work = torch.tensor([batch.rank_tokens]), None
    if batch.dp_size > 1:
        work = dist.all_reduce(count, group=batch.dp_group, async_op=True)
    total = _selected(losses, batch.local_masks).sum()
    if work is not None:
        work.wait()
    if not losses.numel():
        return total
    return total / max(int(count), 1)


def penalty_joined_piece_by_piece(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the penalty to each token first, so that both terms share the rollout's count."""
    policy = _selected(losses, batch.local_masks)
    penalty = _selected(kl, batch.local_masks)
    pieces = [int(mask.sum()) for mask in batch.local_masks]
    if not any(pieces):  # an empty shard still takes part in backward
        return policy.sum() + penalty.sum()
    total = _divided(policy + penalty, batch, batch.rollout_tokens)
    return total / max(batch.num_rollouts, 1)
