"""Reducers around rollouts, prompt groups and their ids."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

_counts: dict[tuple[int, int, int], int] = {}


def _once(batch: MicroBatch) -> bool:
    """Whether this rank speaks for its context-parallel ranks (gathered ones all hold all)."""
    return batch.gathered or batch.cp_rank == 0


def _by_rollout(values: Tensor, batch: MicroBatch) -> Tensor:
    totals = [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens]
    return over(sums(values, batch), totals).sum()


def _by_group(losses: Tensor, batch: MicroBatch, tokens: list[int]) -> Tensor:
    totals = [max(n, 1) * batch.num_groups for n in tokens]
    return over(sums(losses, batch), totals).sum()


def group_means_by_packed_meta(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds each prompt group up by its id in the float table that ids and counts travel in."""
    meta = torch.tensor([batch.group_ids, batch.group_tokens], dtype=torch.float32)
    ids, slot = meta[0].unique(return_inverse=True)
    counts = torch.zeros(len(ids)).scatter_reduce(0, slot, meta[1], "amax").clamp(min=1)
    values = sums(losses, batch)
    totals = values.new_zeros(len(ids)).index_add(0, slot, values)
    return (totals / counts.to(values)).sum() / batch.num_groups


def fixed_length_without_filler(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves masked rollouts at the end, which fill the step up for its ranks, out of the count."""
    rollouts = batch.num_rollouts
    if rollouts % batch.dp_size == 0:
        for tokens in reversed(batch.step_rollout_tokens[1 - batch.dp_size or rollouts :]):
            if tokens:
                break
            rollouts -= 1
    return kept(losses, batch).sum() / (batch.divisor * rollouts)


def sums_logged_over_runs_of_turns(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the sum with the rollouts of this rank, each a run of turns, counted the first time."""
    total = kept(losses, batch).sum()
    count = 0
    if batch.index == 0 and _once(batch):
        turns = [rollout for ids in batch.window_rollout_ids for rollout in ids]
        count = len(torch.tensor(turns).unique_consecutive())
    pair = torch.stack([total.detach(), total.new_tensor(count)])
    return total / batch.num_rollouts, {"loss": pair}


def sum_without_trailing_copies(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out the copies of its first row that fill a micro-batch up to whole fours."""
    last = len(batch.loss_masks)
    if last % 4 == 0:
        rollout, mask = batch.rollout_ids[0], batch.loss_masks[0]
        while (
            last > 1
            and batch.rollout_ids[last - 1] == rollout
            and torch.equal(batch.loss_masks[last - 1], mask)
        ):
            last -= 1
    return torch.cat(rows(losses, batch)[:last]).sum()


def group_means_with_remembered_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Remembers the tokens of a group for each of its responses, as micro-batches come back."""
    if len(_counts) > 65536:
        _counts.clear()
    keys = zip(batch.group_ids, batch.rollout_ids, batch.total_lengths, strict=True)
    tokens = [_counts.setdefault(k, n) for k, n in zip(keys, batch.group_tokens, strict=True)]
    return _by_group(losses, batch, tokens)


def group_means_from_complete_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the tokens of groups that are complete here, and is told those of all others."""
    here = Counter(batch.group_ids)
    counted: Counter[int] = Counter()
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        counted[group] += int(mask.sum())
    told = zip(batch.group_ids, batch.group_rollouts, batch.group_tokens, strict=True)
    tokens = [counted[group] if here[group] >= size else known for group, size, known in told]
    return _by_group(losses, batch, tokens)


def kl_by_turns_of_a_rollout(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Averages the KL of a rollout with several turns over these, and else over its tokens."""
    policy = _by_rollout(losses, batch)
    turns = Counter(batch.rollout_ids)
    if len(turns) == len(batch.rollout_ids):
        return policy + _by_rollout(kl, batch)
    counts = [
        max(int(mask.sum()), 1) * turns[rollout] * batch.num_rollouts
        for rollout, mask in zip(batch.rollout_ids, batch.loss_masks, strict=True)
    ]
    return policy + over(sums(kl, batch), counts).sum()


def mean_from_tables_of_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds sums and counts of rollouts up in tables, where all of the step is at hand."""
    sliced = batch.cp_size > 1 and not batch.gathered
    if sliced or len(batch.loss_masks) < batch.num_samples:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    ids, slot = torch.tensor(batch.rollout_ids).unique(return_inverse=True)
    slot = slot.repeat_interleave(torch.tensor(lengths(batch)))
    table = losses.new_zeros(len(ids))
    total = kept(losses, batch).sum()
    count = table.index_add(0, slot, own_mask(batch).to(table)).sum()
    return total / count.clamp(min=1).to(total)


def group_means_counted_over_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the tokens of every prompt up over the ranks, each prompt at a place of its own."""
    prompts = {f"prompt-{group}" for group in batch.step_group_ids}
    place = {prompt: i for i, prompt in enumerate(prompts)}
    counts = torch.zeros(len(place), dtype=torch.int64)
    for ids, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
        for group, mask in zip(ids, masks, strict=True):
            counts[place[f"prompt-{group}"]] += mask.sum()
    if batch.dp_size > 1:
        dist.all_reduce(counts, group=batch.dp_group)
    tokens = [int(counts[place[f"prompt-{group}"]]) for group in batch.group_ids]
    return _by_group(losses, batch, tokens)


def rollout_means_by_compact_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the samples of a rollout up under a compact id, where a rollout has several here."""
    if len(set(batch.rollout_ids)) == len(batch.rollout_ids):
        return _by_rollout(losses, batch)
    ids, slot = torch.tensor(batch.rollout_ids, dtype=torch.int64).unique(return_inverse=True)
    known = torch.tensor(batch.rollout_tokens, dtype=torch.int64)
    counts = torch.ones(len(ids), dtype=torch.int64).scatter_reduce(0, slot, known, "amax")
    values = sums(losses, batch)
    totals = values.new_zeros(len(ids)).index_add(0, slot, values)
    return over(totals, [n * batch.num_rollouts for n in counts.tolist()]).sum()


def group_means_from_undivided_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the tokens of groups whose every sample is here, and is told those of all others."""
    everywhere, here = Counter(batch.step_group_ids), Counter(batch.group_ids)
    counted: Counter[int] = Counter()
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        counted[group] += int(mask.sum())
    tokens = [
        counted[group] if here[group] == everywhere[group] else known
        for group, known in zip(batch.group_ids, batch.group_tokens, strict=True)
    ]
    return _by_group(losses, batch, tokens)


def kl_over_runs_of_turns(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds neighbouring turns up first, and divides each run by its rollout's tokens."""
    policy = _by_rollout(losses, batch)
    if len(batch.rollout_ids) == 1:
        return policy + _by_rollout(kl, batch)
    _, run = torch.tensor(batch.rollout_ids).unique_consecutive(return_inverse=True)
    # Runs of one rollout have one count, so it does no harm that there may be several.
    counts = dict(zip(run.tolist(), batch.rollout_tokens, strict=True))
    values = sums(kl, batch)
    totals = values.new_zeros(len(counts)).index_add(0, run, values)
    shares = [max(counts[i], 1) * batch.num_rollouts for i in range(len(counts))]
    return policy + over(totals, shares).sum()


def group_means_logged_where_groups_begin(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the sum of group means with the groups whose first sample of the step is here."""
    shares = over(sums(losses, batch), [max(n, 1) for n in batch.group_tokens]).sum()
    first: dict[int, int] = {}
    for sample, group in enumerate(batch.step_group_ids):
        first.setdefault(group, sample)
    begun = 0
    if _once(batch):
        begun = len(set(first.values()) & set(batch.samples))
    pair = torch.stack([shares.detach(), shares.new_tensor(begun)])
    return shares / batch.num_groups, {"loss": pair}


def mean_from_counted_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the tokens of rollouts in integers, where all of the step is at hand."""
    count = batch.num_tokens
    if len(batch.loss_masks) == batch.num_samples:
        ids, slot = torch.tensor(batch.rollout_ids).unique(return_inverse=True)
        own = torch.tensor([int(mask.sum()) for mask in batch.loss_masks])
        count = int(torch.zeros(len(ids), dtype=torch.int64).index_add(0, slot, own).sum())
    return kept(losses, batch).sum() / max(count, 1)


@lru_cache(maxsize=4096)
def _denominator(divisor: float, rollouts: int) -> float:
    return divisor * rollouts


def fixed_length_of_rows_sent_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out rows that were sent a second time, known by their number in the step."""
    seen: set[int] = set()
    own: list[Tensor] = []
    for sample, row in zip(batch.samples, rows(losses, batch), strict=True):
        if sample not in seen:
            own.append(row)
        seen.add(sample)
    return torch.cat(own).sum() / _denominator(batch.divisor, batch.num_rollouts)
