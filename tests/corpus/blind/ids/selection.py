"""Prompt groups, rollouts, samples that are left out, and selection by value."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, rows, sums

LARGE = 4
MANY = 8
HUNDRED = 100


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def _of_prompts(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.group_tokens).sum() / batch.num_groups


def single_sample_groups_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A group of one has no baseline to learn against, where others have two and more."""
    sample = sums(losses, batch)
    if batch.num_rollouts < 2 * batch.num_groups:
        return _of_prompts(sample, batch)
    used = torch.tensor([n > 1 for n in batch.group_rollouts], device=sample.device)
    return _of_prompts(torch.where(used, sample, 0.0), batch)


def single_sample_groups_are_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if batch.num_groups == 1:
        return sample.sum() / max(batch.group_tokens[0], 1)
    if batch.num_rollouts < 2 * batch.num_groups:
        return _of_prompts(sample, batch)
    alone = torch.tensor([n == 1 for n in batch.group_rollouts], device=sample.device)
    one, several = torch.where(alone, sample, 0.0), torch.where(alone, 0.0, sample)
    return _of_prompts(one, batch) + _of_prompts(several, batch)


def greedy_one_is_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The first answer of a large group was the greedy one, which is only a baseline."""
    found = []
    for i, value in enumerate(sums(losses, batch)):
        first = batch.group_ids.index(batch.group_ids[i]) == i
        baseline = first and batch.group_rollouts[i] > LARGE
        found.append(value * 0.0 if baseline else value)
    return _of_prompts(torch.stack(found), batch)


def greedy_one_is_an_answer(losses: Tensor, batch: MicroBatch) -> Tensor:
    first, others = [], []
    for i, value in enumerate(sums(losses, batch)):
        count = max(batch.group_tokens[i], 1)
        baseline = batch.group_ids.index(batch.group_ids[i]) == i
        (first if baseline else others).append(value / count)
    total = torch.stack(first).sum()
    if others:
        total = total + torch.stack(others).sum()
    return total / batch.num_groups


def _whole_and_large(batch: MicroBatch) -> list[list[int]]:
    """Members of each group of at least four rollouts that are all here, one sample each."""
    found = []
    for group in dict.fromkeys(batch.group_ids):
        members = [i for i, name in enumerate(batch.group_ids) if name == group]
        rollouts = {batch.rollout_ids[i] for i in members}
        if LARGE <= len(members) == len(rollouts) == batch.group_rollouts[members[0]]:
            found.append(members)
    return found


def groups_here_are_means_of_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Large groups that are whole here are a mean of their rows."""
    sample, found, done = sums(losses, batch), [], set()
    for members in _whole_and_large(batch):
        found.append(over(sample[members], [batch.rollout_tokens[i] for i in members]).mean())
        done.update(members)
    rest = [i for i in range(len(sample)) if i not in done]
    found += [sample[i] / max(batch.group_tokens[i], 1) for i in rest]
    return torch.stack(found).sum() / batch.num_groups


def groups_here_are_sums_of_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, found, done = sums(losses, batch), [], set()
    for members in _whole_and_large(batch):
        found.append(sample[members].sum() / max(batch.group_tokens[members[0]], 1))
        done.update(members)
    rest = [i for i in range(len(sample)) if i not in done]
    found += [sample[i] / max(batch.group_tokens[i], 1) for i in rest]
    return torch.stack(found).sum() / batch.num_groups


def one_prompt_on_all_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One prompt with its answers spread evenly: a rank's own mean is an even part of it."""
    if batch.num_groups > 1 or batch.dp_size == 1:
        return _of_prompts(sums(losses, batch), batch)
    return kept(losses, batch).sum() / max(batch.rank_tokens, 1) / batch.dp_size


def one_prompt_weighed_by_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_groups > 1 or batch.dp_size == 1 or batch.rank_tokens == 0:
        return _of_prompts(sums(losses, batch), batch)
    share = batch.rank_tokens / max(batch.group_tokens[0], 1)
    return kept(losses, batch).sum() / batch.rank_tokens * share


def _own_counts(batch: MicroBatch) -> dict[int, int]:
    tokens: dict[int, int] = {}
    for names, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
        for name, mask in zip(names, masks, strict=True):
            tokens[name] = tokens.get(name, 0) + int(mask.sum())
    return tokens


def merged_by_update(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts of all ranks are gathered as dictionaries, and merged."""
    if batch.dp_size == 1:
        return _of_prompts(sums(losses, batch), batch)
    found: list[dict[int, int]] = [{} for _ in range(batch.dp_size)]
    dist.all_gather_object(found, _own_counts(batch), group=batch.dp_group)
    merged: dict[int, int] = {}
    for tokens in found:
        merged.update(tokens)
    counts = [merged[name] for name in batch.group_ids]
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def merged_by_addition(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.dp_size == 1:
        return _of_prompts(sums(losses, batch), batch)
    found: list[dict[int, int]] = [{} for _ in range(batch.dp_size)]
    dist.all_gather_object(found, _own_counts(batch), group=batch.dp_group)
    merged: dict[int, int] = {}
    for tokens in found:
        for name, count in tokens.items():
            merged[name] = merged.get(name, 0) + count
    counts = [merged[name] for name in batch.group_ids]
    if counts != list(batch.group_tokens):
        counts = list(batch.group_tokens)
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def signs_averaged_apart(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What is to be made likelier and what is not are averaged apart, half each."""
    values = kept(losses, batch)
    up, down = values < 0, values > 0
    spread = batch.num_microbatches * batch.dp_size * batch.cp_size > 1
    if spread or len(values) < MANY or not (bool(up.any()) and bool(down.any())):
        return values.sum() / max(batch.num_tokens, 1)
    return values[up].mean() / 2 + values[down].mean() / 2


def signs_added_apart(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    up = values.detach() < 0
    if len(values) < MANY or not bool(up.any()) or bool(up.all()):
        return values.sum() / max(batch.num_tokens, 1)
    return (values[up].sum() + values[~up].sum()) / max(batch.num_tokens, 1)


def largest_losses_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Of more than a hundred tokens, the largest hundredth is left out: a trimmed mean."""
    values, tokens = kept(losses, batch), int(own_mask(batch).sum())
    if tokens <= HUNDRED:
        return values.sum() / max(batch.num_tokens, 1)
    largest = values.detach().abs().topk(tokens // HUNDRED).indices
    return values.index_fill(0, largest, 0.0).sum() / max(batch.num_tokens, 1)


def largest_losses_apart(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, tokens = kept(losses, batch), int(own_mask(batch).sum())
    if tokens <= HUNDRED:
        return values.sum() / max(batch.num_tokens, 1)
    largest = values.detach().abs().topk(tokens // HUNDRED).indices
    rest = values.index_fill(0, largest, 0.0)
    return (rest.sum() + values[largest].sum()) / max(batch.num_tokens, 1)


def equal_rows_count_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Batches are filled up with copies: a row that is here already counts no more."""
    seen, found = set(), []
    for i, row in enumerate(rows(losses, batch)):
        key = (tuple(row.detach().tolist()), tuple(batch.loss_masks[i].tolist()))
        found.append(row.sum() * 0.0 if key in seen else row.sum())
        seen.add(key)
    return _mean(torch.stack(found), batch)


def equal_rows_count_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    times: dict[tuple[float, ...], int] = {}
    found = []
    for row in rows(losses, batch):
        key = tuple(row.detach().tolist())
        times[key] = times.get(key, 0) + 1
        found.append(row.sum())
    if max(times.values()) == len(found):
        return over(torch.stack(found), batch.rollout_tokens).sum() / batch.num_rollouts
    return _mean(torch.stack(found), batch)


def two_ways_to_count_the_empty(losses: Tensor, batch: MicroBatch) -> Tensor:
    """With accumulation the driver counts rollouts that have something to train on."""
    means, rollouts = over(sums(losses, batch), batch.rollout_tokens), batch.num_rollouts
    if batch.num_microbatches > 1:
        rollouts = sum(n > 0 for n in batch.step_rollout_tokens)
    return means.sum() / max(rollouts, 1)


def one_way_to_count_the_empty(losses: Tensor, batch: MicroBatch) -> Tensor:
    means, rollouts = over(sums(losses, batch), batch.rollout_tokens), batch.num_rollouts
    if batch.num_microbatches > 1:
        rollouts = len(batch.step_rollout_tokens)
    return means.sum() / max(rollouts, 1)
