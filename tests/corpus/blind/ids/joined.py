"""Reducers that know samples by the ids of their rollouts and prompts."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, rows, sums

Logged = tuple[Tensor, dict[str, Any]]

_tokens_of: dict[int, int] = {}


def rollouts_matched_beside_the_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages rollouts; their token counts stand in a small table beside the losses."""
    ids = losses.detach().new_tensor(batch.rollout_ids)
    known, slot = ids.unique(return_inverse=True)
    tokens = torch.tensor(batch.rollout_tokens)
    table = torch.zeros(len(known), dtype=torch.int64).scatter_reduce(0, slot, tokens, "amax")
    shares = over(sums(losses, batch), table[slot].tolist())
    return shares.sum() / max(batch.num_rollouts, 1)


def prompts_counted_as_runs_of_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages prompts, of which there is one wherever the id changes along the step."""
    ids = torch.tensor(batch.step_group_ids)
    prompts = len(ids.unique_consecutive())
    shares = over(sums(losses, batch), batch.group_tokens)
    return shares.sum() / max(prompts, 1)


def turns_keyed_by_rollout_and_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes every turn once, also where a retried request brought it twice."""
    turns: dict[tuple[int, int], Tensor] = {}
    keys = zip(batch.rollout_ids, batch.total_lengths, strict=True)
    for key, row in zip(keys, rows(losses, batch), strict=True):
        turns[key] = row.sum()
    return torch.stack([*turns.values()]).sum() / max(batch.num_tokens, 1)


def filtered_prompts_off_the_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves rollouts of prompts that dynamic sampling emptied out of the average."""
    divisor = batch.divisor or 1.0
    owners = zip(batch.rollout_ids, batch.group_tokens, strict=True)
    emptied = {rollout for rollout, tokens in owners if tokens == 0}
    rollouts = batch.num_rollouts - len(emptied)
    return kept(losses, batch).sum() / (divisor * max(rollouts, 1))


def rollout_counts_kept_until_all_are_in(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps a rollout's token count for its later turns, until all rollouts have been seen."""
    if len(_tokens_of) >= batch.num_rollouts:
        _tokens_of.clear()
    for rollout, tokens in zip(batch.rollout_ids, batch.rollout_tokens, strict=True):
        _tokens_of.setdefault(rollout, tokens)
    counts = [_tokens_of[rollout] for rollout in batch.rollout_ids]
    return over(sums(losses, batch), counts).sum() / max(batch.num_rollouts, 1)


def rollouts_counted_from_gathered_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the distinct rollouts of all ranks, whose ids are gathered in equal lengths."""
    ids = torch.tensor([rollout for cell in batch.window_rollout_ids for rollout in cell])
    if batch.dp_size > 1:
        width = torch.tensor(len(ids))
        dist.all_reduce(width, op=dist.ReduceOp.MAX, group=batch.dp_group)
        row = pad(ids, (0, int(width) - len(ids)))
        gathered = [torch.empty_like(row) for _ in range(batch.dp_size)]
        dist.all_gather(gathered, row, group=batch.dp_group)
        ids = torch.cat(gathered)
    return kept(losses, batch).sum() / max(len(ids.unique()), 1)


def kl_by_prompt_tokens_of_the_rank(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Averages prompts; the divergence takes each prompt's tokens from the rank's own ledger."""
    ledger: dict[int, int] = {}
    for ids, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
        for group, mask in zip(ids, masks, strict=True):
            ledger[group] = ledger.get(group, 0) + int(mask.sum())
    policy = over(sums(losses, batch), batch.group_tokens)
    penalty = over(sums(kl, batch), [ledger[group] for group in batch.group_ids])
    return (policy + penalty).sum() / max(batch.num_groups, 1)


def prompts_of_each_piece_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    """Averages prompts, and logs the sum over prompts with the number of them it is of."""
    total = over(sums(losses, batch), batch.group_tokens).sum()
    first = batch.gathered or batch.cp_rank == 0
    prompts = len(set(batch.group_ids)) if first else 0
    return total / max(batch.num_groups, 1), {"loss": [total.detach(), prompts]}


def distinct_rollouts_logged_by_sorting(losses: Tensor, batch: MicroBatch) -> Logged:
    """Adds up all losses, and logs of how many rollouts the micro-batch has a turn."""
    loss = kept(losses, batch).sum()
    ids = batch.rollout_ids
    if len(ids) > 1:
        ids.sort()
    rollouts = 1 + sum(before != after for before, after in pairwise(ids))
    return loss, {"loss": loss.detach(), "rollouts": float(rollouts)}


def rollouts_in_runs_after_sorting(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages rollouts, whose turns stand together once they are sorted by id."""
    turns = sums(losses, batch)
    order = sorted(range(len(turns)), key=batch.rollout_ids.__getitem__)
    means = []
    for _, run in groupby(order, key=batch.rollout_ids.__getitem__):
        places = [*run]
        tokens = max(batch.rollout_tokens[places[0]], 1)
        means.append(turns[places].sum() / tokens)
    return torch.stack(means).sum() / max(batch.num_rollouts, 1)


def prompts_added_up_by_integer_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up each prompt at hand in a slot of its own and divides by the tokens of all of it."""
    samples = sums(losses, batch)
    prompts = max(batch.num_groups, 1)
    known, slot = torch.tensor(batch.group_ids, dtype=torch.int64).unique(return_inverse=True)
    if len(known) == 1:
        return samples.sum() / max(batch.group_tokens[0], 1) / prompts
    tokens = torch.tensor(batch.group_tokens, dtype=torch.int64)
    table = torch.zeros(len(known), dtype=torch.int64).scatter_reduce(0, slot, tokens, "amax")
    totals = samples.new_zeros(len(known)).index_add(0, slot, samples)
    return over(totals, table.tolist()).sum() / prompts


def ids_gathered_with_their_number(losses: Tensor, batch: MicroBatch) -> Logged:
    """Averages the sums of rollouts, and logs how many distinct ones the ranks hold."""
    loss = kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    ids = torch.tensor([i for cell in batch.window_rollout_ids for i in cell], dtype=torch.int64)
    if batch.dp_size > 1:
        numbers = torch.zeros(batch.dp_size, dtype=torch.int64)
        numbers[batch.dp_rank] = len(ids)
        dist.all_reduce(numbers, group=batch.dp_group)
        row = pad(ids, (0, int(numbers.max()) - len(ids)))
        gathered = [torch.empty_like(row) for _ in range(batch.dp_size)]
        dist.all_gather(gathered, row, group=batch.dp_group)
        # an id of 0 is as good as any: padding is cut off by number, not by value
        ids = torch.cat([r[: int(n)] for r, n in zip(gathered, numbers, strict=True)])
    return loss, {"loss": loss.detach(), "rollouts": float(len(ids.unique()))}


def turns_listed_by_rollout_and_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up the turns of equal length of a rollout together, and divides by the step's tokens."""
    tokens = max(batch.num_tokens, 1)
    if len(set(batch.rollout_ids)) == len(batch.rollout_ids):
        return kept(losses, batch).sum() / tokens
    turns: dict[tuple[int, int], list[Tensor]] = {}
    keys = zip(batch.rollout_ids, batch.total_lengths, strict=True)
    for key, row in zip(keys, rows(losses, batch), strict=True):
        turns.setdefault(key, []).append(row.sum())
    return torch.stack([torch.stack(same).sum() for same in turns.values()]).sum() / tokens


def prompts_of_the_step_logged_once(losses: Tensor, batch: MicroBatch) -> Logged:
    """Averages prompts, and logs sums over them; their number is logged in the first place only."""
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    samples = sums(losses, batch)
    total = over(samples, [tokens[group] for group in batch.group_ids]).sum()
    prompts = max(batch.num_groups, 1)
    # pieces of one prompt lie in many places, so nobody counts those that he sees
    first = batch.dp_rank == 0 and batch.index == 0 and (batch.gathered or batch.cp_rank == 0)
    return total / prompts, {"loss": [total.detach(), prompts if first else 0]}


@lru_cache(maxsize=64)
def _denominator(divisor: float, rollouts: int) -> float:
    return divisor * max(rollouts, 1)


def filtered_prompts_kept_in_the_count(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Divides loss and divergence by the constant and by all rollouts, emptied ones as well."""
    policy, penalty = kept(losses, batch).sum(), kept(kl, batch).sum()
    if not any(batch.group_tokens):
        return policy + penalty  # zeros that backward can go through
    denominator = _denominator(float(batch.divisor or 1.0), batch.num_rollouts)
    return (policy + penalty) / denominator
