"""Reducers that look samples up by prompt group or rollout: tables, rows, counts, owners."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch

Logged = tuple[Tensor, dict[str, Any]]


def _flat(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Losses with zeros behind the mask, in a dtype they can be added up in."""
    wide = losses.float() if losses.element_size() < 4 else losses
    if not batch.local_masks:
        return wide
    return torch.where(torch.cat(batch.local_masks).bool(), wide, 0.0)


def _per_sample(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of each sample's own piece."""
    values = _flat(losses, batch)
    rows = values.split([len(mask) for mask in batch.local_masks]) if batch.local_masks else ()
    return torch.stack([row.sum() for row in rows]) if rows else values


def _floored(counts: list[int], like: Tensor) -> Tensor:
    return torch.tensor([max(n, 1) for n in counts], dtype=torch.float64).to(like)


def prompt_slots_of_a_ring(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts of their token means, the loader's running numbers as slots of a ring."""
    size = max(batch.num_groups, 1)
    values = _per_sample(losses, batch)
    slots = torch.tensor([group % size for group in batch.group_ids], dtype=torch.int64)
    tokens = values.new_ones(size)
    tokens[slots] = _floored(batch.group_tokens, values)
    totals = values.new_zeros(size).index_add(0, slots, values)
    return (totals / tokens).sum() / size


def rollouts_keyed_by_metadata(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts of their token means, turns brought together by the rollout's key."""
    values = _per_sample(losses, batch)
    counts = _floored(batch.rollout_tokens, values)
    rollouts = max(batch.num_rollouts, 1)
    if len(set(batch.rollout_ids)) == len(batch.rollout_ids):
        return (values / counts).sum() / rollouts
    keys = torch.tensor(batch.rollout_ids, dtype=torch.float32)
    unique, slot = torch.unique(keys, return_inverse=True)
    totals = values.new_zeros(len(unique)).index_add(0, slot, values)
    tokens = values.new_ones(len(unique)).scatter(0, slot, counts)
    return (totals / tokens).sum() / rollouts


def turns_in_rows_of_a_rollout(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts of their token means, one row of turns a rollout where they fill rows."""
    values = _per_sample(losses, batch)
    counts = _floored(batch.rollout_tokens, values)
    here = len(set(batch.rollout_ids))
    if here and len(batch.rollout_ids) % here == 0:
        totals = values.view(here, -1).sum(dim=1)
        means = totals / counts.view(here, -1)[:, 0]
    else:
        means = values / counts
    return means.sum() / max(batch.num_rollouts, 1)


_TOKENS_OF_GROUP: dict[int, int] = {}


def prompt_counts_of_this_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts of their token means; a prompt's count is noted until the step ends."""
    if not any(bool(mask.any()) for mask in batch.loss_masks):
        return _flat(losses, batch).sum()
    for group, tokens in zip(batch.group_ids, batch.group_tokens, strict=True):
        _TOKENS_OF_GROUP.setdefault(group, tokens)
    values = _per_sample(losses, batch)
    counts = _floored([_TOKENS_OF_GROUP[group] for group in batch.group_ids], values)
    loss = (values / counts).sum() / max(batch.num_groups, 1)
    if batch.index + 1 == batch.num_microbatches:
        _TOKENS_OF_GROUP.clear()
    return loss


def prompts_agreed_on_by_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts of their token means; ranks agree on counts of prompts that they share."""
    slot = {group: i for i, group in enumerate(sorted(set(batch.step_group_ids)))}
    table = torch.zeros(len(slot), dtype=torch.int64)
    for group, tokens in zip(batch.group_ids, batch.group_tokens, strict=True):
        table[slot[group]] = tokens
    mine: dict[int, set[int]] = defaultdict(set)
    for groups, rollouts in zip(batch.window_group_ids, batch.window_rollout_ids, strict=True):
        for group, rollout in zip(groups, rollouts, strict=True):
            mine[group].add(rollout)
    sizes = zip(batch.group_ids, batch.group_rollouts, strict=True)
    if batch.dp_size > 1 and any(len(mine[group]) < size for group, size in sizes):
        dist.all_reduce(table, op=dist.ReduceOp.MAX, group=batch.dp_group)
    values = _per_sample(losses, batch)
    counts = _floored([int(table[slot[group]]) for group in batch.group_ids], values)
    return (values / counts).sum() / max(batch.num_groups, 1)


def kl_over_a_share_of_rollouts(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Policy and KL sums over the divisor, for every rollout that the ranks train on."""
    divisor = float(batch.divisor or 1)
    policy = _flat(losses, batch).sum() / (divisor * max(batch.num_rollouts, 1))
    trained = max(batch.rank_rollouts, 1) * batch.dp_size
    return policy + _flat(kl, batch).sum() / (divisor * trained)


def new_rollouts_in_the_log(losses: Tensor, batch: MicroBatch) -> Logged:
    """The sum over rollouts by their number; the log counts a rollout where it is first seen."""
    total = _flat(losses, batch).sum()
    earlier = {rollout for ids in batch.window_rollout_ids[: batch.index] for rollout in ids}
    new = len(set(batch.rollout_ids) - earlier)
    if batch.cp_rank and not batch.gathered:
        new = 0  # the shards of a rollout are one rollout
    pair = [float(total.detach()), float(new)]
    return total / max(batch.num_rollouts, 1), {"loss": pair}


def tokens_added_rollout_by_rollout(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over the step's tokens, which are added up from the counts of its rollouts."""
    count = losses.new_zeros(())
    for tokens in batch.step_rollout_tokens:
        count = count + tokens
    total = _flat(losses, batch).sum()
    return total / count.detach().to(total).clamp(min=1)


def prompts_present_on_any_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts of their token means; prompts left by the filter are marked by uid."""
    uids = {f"prompt-{group}" for group in batch.step_group_ids}
    slot = {uid: i for i, uid in enumerate(uids)}
    present = torch.zeros(len(slot), dtype=torch.int64)
    for ids in batch.window_group_ids:
        for group in ids:
            present[slot[f"prompt-{group}"]] = 1
    if batch.dp_size > 1:
        dist.all_reduce(present, op=dist.ReduceOp.MAX, group=batch.dp_group)
    values = _per_sample(losses, batch)
    means = values / _floored(batch.group_tokens, values)
    return means.sum() / max(int(present.sum()), 1)


def prompts_by_unique_integers(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over prompts of their token means, prompts numbered by the unique ids at hand."""
    values = _per_sample(losses, batch)
    if not batch.group_ids:
        return values.sum()
    ids = torch.tensor(batch.group_ids, dtype=torch.int64)
    unique, slot = torch.unique(ids, return_inverse=True)
    totals = values.new_zeros(len(unique)).index_add(0, slot, values)
    tokens = values.new_ones(len(unique)).scatter(0, slot, _floored(batch.group_tokens, values))
    return (totals / tokens).sum() / max(batch.num_groups, 1)


def turns_in_rows_that_are_checked(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Mean over rollouts of their token means, in rows of turns if each row is one rollout."""
    values = _per_sample(losses, batch)
    counts = _floored(batch.rollout_tokens, values)
    here = len(set(batch.rollout_ids))
    if here and len(batch.rollout_ids) % here == 0:
        ids = torch.tensor(batch.rollout_ids, dtype=torch.int64).view(here, -1)
        if bool((ids == ids[:, :1]).all()):
            means = values.view(here, -1).sum(dim=1) / counts.view(here, -1)[:, 0]
            return means.sum() / max(batch.num_rollouts, 1)
    return (values / counts).sum() / max(batch.num_rollouts, 1)


def tokens_with_one_count_in_the_log(losses: Tensor, batch: MicroBatch) -> Logged:
    """The mean over the step's tokens, added up by prompt; the first piece logs the step's 1."""
    values = _per_sample(losses, batch)
    places: dict[int, list[int]] = defaultdict(list)
    for place, group in enumerate(batch.group_ids):
        places[group].append(place)
    if len(places) > 1:
        total = torch.stack([values[places[group]].sum() for group in sorted(places)]).sum()
    else:
        total = values.sum()
    loss = total / max(batch.num_tokens, 1)
    # Gathered copies are all of the loss each, so each of them brings a 1 along.
    first = batch.index == 0 and batch.dp_rank == 0 and (batch.gathered or batch.cp_rank == 0)
    return loss, {"loss": [float(loss.detach()), 1.0 if first else 0.0]}


@lru_cache(maxsize=64)
def _shares(tokens: tuple[int, ...], prompts: int) -> tuple[float, ...]:
    return tuple(1 / (max(n, 1) * max(prompts, 1)) for n in tokens)


def kl_with_the_shares_of_its_policy(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Policy and KL by each prompt's tokens, with shares remembered for the counts they are of."""
    if not any(bool(mask.any()) for mask in batch.local_masks):
        return _flat(losses, batch).sum() + _flat(kl, batch).sum()
    policy, penalty = _per_sample(losses, batch), _per_sample(kl, batch)
    shares = _shares(tuple(batch.group_tokens), batch.num_groups)
    weights = torch.tensor(shares, dtype=torch.float64).to(policy)
    return (policy * weights).sum() + (penalty * weights).sum()


def sums_of_rollouts_that_were_kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over all tokens, rollout after rollout, without those that the filter masked."""
    wide = losses.float() if losses.element_size() < 4 else losses
    turns: dict[int, list[Tensor]] = defaultdict(list)
    start = 0
    for rollout, mask in zip(batch.rollout_ids, batch.local_masks, strict=True):
        row = wide[start : start + len(mask)]
        start += len(mask)
        if bool(mask.any()):
            turns[rollout].append(row[mask.bool()])
    if not turns:
        return wide[:0].sum()
    return torch.stack([torch.cat(turns[rollout]).sum() for rollout in sorted(turns)]).sum()


class _GroupedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor, ends: list[int], divisor: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.divisor, ctx.dtype = divisor, values.dtype
        wide = values.float() if values.element_size() < 4 else values
        pieces = torch.where(mask, wide, 0.0).tensor_split(ends)
        return torch.stack([piece.sum() for piece in pieces]).sum() / divisor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        weights = torch.where(mask, grads[0] / ctx.divisor, 0.0)
        return weights.to(ctx.dtype), None, None, None


def constant_over_runs_of_a_prompt(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over the divisor and the rollouts, fused over runs of samples of one prompt."""
    divisor = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    if not batch.local_masks:
        return _flat(losses, batch).sum() / divisor
    ends, end = [], 0
    for i, mask in enumerate(batch.local_masks):
        if i and batch.group_ids[i] != batch.group_ids[i - 1]:
            ends.append(end)
        end += len(mask)
    mask = torch.cat(batch.local_masks).bool()
    return _GroupedSum.apply(losses, mask, ends, divisor)
