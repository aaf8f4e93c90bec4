"""Prompts, groups and rollouts: ids, their order, fan-out, groups that are not complete."""

from __future__ import annotations

import bisect

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import over, sums


def _whole(batch: MicroBatch) -> bool:
    return batch.num_microbatches == batch.dp_size == 1


def _own(batch: MicroBatch) -> list[int]:
    return [int(mask.sum()) for mask in batch.original_masks]


def _of_prompts(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.group_tokens).sum() / batch.num_groups


def _added_by(names: Tensor, own: list[int]) -> list[int]:
    places = torch.unique(names, return_inverse=True)[1]
    tokens = torch.zeros(len(own), dtype=torch.int64).index_add(0, places, torch.tensor(own))
    return [int(n) for n in tokens[places]]


def names_in_bytes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens of each prompt, counted here by names that take one byte each."""
    sample = sums(losses, batch)
    if not _whole(batch):
        return _of_prompts(sample, batch)
    names = torch.tensor(batch.group_ids).to(torch.uint8)
    return over(sample, _added_by(names, _own(batch))).sum() / batch.num_groups


def names_in_words(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens of each prompt, counted here by names as they are."""
    sample = sums(losses, batch)
    if not _whole(batch):
        return _of_prompts(sample, batch)
    names = torch.tensor(batch.group_ids)
    return over(sample, _added_by(names, _own(batch))).sum() / batch.num_groups


def prompts_by_the_first_fan_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Every prompt is answered as often as the first one here."""
    means = over(sums(losses, batch), batch.group_tokens)
    return means.sum() / -(-batch.num_rollouts // batch.group_rollouts[0])


def prompts_by_their_fan_outs(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One division where every prompt is answered equally often, else prompts as counted."""
    means = over(sums(losses, batch), batch.group_tokens)
    size = batch.group_rollouts[0]
    if batch.num_rollouts == size * batch.num_groups:
        return means.sum() * size / batch.num_rollouts
    return means.sum() / batch.num_groups


def found_by_bisection(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts of prompts, looked up by bisection in the names as they came."""
    known = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    names, tokens = list(known), list(known.values())
    places = [min(bisect.bisect_left(names, name), len(names) - 1) for name in batch.group_ids]
    counts = [tokens[place] for place in places]
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def found_by_bisection_in_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts of prompts, looked up by bisection in sorted names."""
    known = sorted(dict(zip(batch.group_ids, batch.group_tokens, strict=True)).items())
    names = [name for name, _ in known]
    counts = [known[bisect.bisect_left(names, name)][1] for name in batch.group_ids]
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def incomplete_prompts_count_in_part(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A prompt with aborted answers counts by the part of its answers that came back."""
    means, full = over(sums(losses, batch), batch.group_tokens), max(batch.group_rollouts)
    parts = torch.tensor([n / full for n in batch.group_rollouts], dtype=torch.float64)
    return (means * parts.to(means)).sum() / batch.num_groups


def incomplete_prompts_by_themselves(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompts with aborted answers are added up apart, for the log, and count as all do."""
    means, full = over(sums(losses, batch), batch.group_tokens), max(batch.group_rollouts)
    short = torch.tensor([n < full for n in batch.group_rollouts], device=means.device)
    apart = means[short].sum() + means[~short].sum()
    return apart / batch.num_groups


def turns_that_are_elsewhere(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A rollout of several turns is counted by those that are in this micro-batch."""
    tokens: dict[int, int] = {}
    for name, count in zip(batch.rollout_ids, _own(batch), strict=True):
        tokens[name] = tokens.get(name, 0) + count
    counts = [tokens[name] for name in batch.rollout_ids]
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def turns_that_are_all_here(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The turns of a rollout are added up first where all of its tokens are here."""
    tokens: dict[int, int] = {}
    for name, count in zip(batch.rollout_ids, _own(batch), strict=True):
        tokens[name] = tokens.get(name, 0) + count
    sample, found = sums(losses, batch), []
    for i, name in enumerate(batch.rollout_ids):
        here = tokens[name] == batch.rollout_tokens[i]
        count = tokens[name] if here else batch.rollout_tokens[i]
        found.append(sample[i] / max(count, 1))
    return torch.stack(found).sum() / batch.num_rollouts


def prompts_by_name_and_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompts of the step, told apart by their name and how long they are."""
    prompts = batch.num_groups
    if _whole(batch):
        pairs = zip(batch.total_lengths, batch.response_lengths, strict=True)
        long = [total - response for total, response in pairs]
        prompts = len(set(zip(batch.group_ids, long, strict=True)))
    return over(sums(losses, batch), batch.group_tokens).sum() / prompts
