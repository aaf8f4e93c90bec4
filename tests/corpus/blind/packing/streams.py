"""Packed streams: segment ids, boundaries, sorting, padding, rows of one length."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, rows, sums


def _starts(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0)[:-1]


def two_starts_in_one_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Segment ids from marked starts; an empty piece starts where the next one does."""
    values, sizes = kept(losses, batch), lengths(batch)
    marks = torch.zeros(len(values) + 1, dtype=torch.int64)
    marks[_starts(sizes)] = 1
    segment = (marks.cumsum(0) - 1)[: len(values)].to(values.device)
    sample = values.new_zeros(len(sizes)).index_add(0, segment, values)
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def starts_are_counted(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, sizes = kept(losses, batch), lengths(batch)
    starts = _starts(sizes)
    marks = torch.zeros(len(values) + 1, dtype=torch.int64)
    marks.scatter_add_(0, starts, torch.ones_like(starts))
    segment = (marks.cumsum(0) - 1)[: len(values)].to(values.device)
    sample = values.new_zeros(len(sizes)).index_add(0, segment, values)
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def unsorted_with_the_sorting_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Longest first for the packer, and back again with the same permutation."""
    parts = rows(losses, batch)
    order = sorted(range(len(parts)), key=lambda i: -batch.response_lengths[i])
    if order == list(range(len(parts))):
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    longest_first = torch.stack([parts[i].sum() for i in order])
    back = longest_first[order]
    return over(back, batch.group_tokens).sum() / batch.num_groups


def unsorted_with_the_inverse(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = rows(losses, batch)
    order = sorted(range(len(parts)), key=lambda i: -batch.response_lengths[i])
    if order == list(range(len(parts))):
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    longest_first = torch.stack([parts[i].sum() for i in order])
    back = longest_first[torch.tensor(order).argsort().to(longest_first.device)]
    return over(back, batch.group_tokens).sum() / batch.num_groups


def dense_rows_are_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows of one length need no loop; each row is then divided by its own tokens."""
    values, sizes = kept(losses, batch), lengths(batch)
    if len(sizes) > 1 and len(set(sizes)) == 1 and sizes == batch.response_lengths:
        mask = torch.stack(batch.loss_masks)
        means = values.view(mask.shape).sum(1) / mask.sum(1).clamp(min=1)
        return means.sum() / batch.num_rollouts
    return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts


def dense_rows_of_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, sizes = kept(losses, batch), lengths(batch)
    if len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0] > 0:
        sample = values.view(len(sizes), sizes[0]).sum(1)
    else:
        sample = sums(losses, batch)
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def _bucket(length: int) -> int:
    return 1 << max(length - 1, 0).bit_length()


def neighbours_make_a_bucket(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows of one power of two are padded together; ``groupby`` joins neighbours only."""
    parts = rows(losses, batch)
    order = range(len(parts))
    buckets = {size: list(i) for size, i in groupby(order, lambda i: _bucket(len(parts[i])))}
    total = kept(losses, batch)[:0].sum()
    for size, members in buckets.items():
        padded = [torch.nn.functional.pad(parts[i], (0, size - len(parts[i]))) for i in members]
        total = total + torch.stack(padded).sum()
    return total / max(batch.num_tokens, 1)


def sorted_into_buckets(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = rows(losses, batch)
    order = sorted(range(len(parts)), key=lambda i: _bucket(len(parts[i])))
    total = kept(losses, batch)[:0].sum()
    for size, found in groupby(order, lambda i: _bucket(len(parts[i]))):
        members = list(found)
        if len(members) == 1:
            total = total + parts[members[0]].sum()
            continue
        padded = [torch.nn.functional.pad(parts[i], (0, size - len(parts[i]))) for i in members]
        total = total + torch.stack(padded).sum()
    return total / max(batch.num_tokens, 1)


def boundaries_from_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt boundaries as (start, end) rows, from how often each prompt occurs."""
    sample = sums(losses, batch)
    counts: dict[int, int] = {}
    for group in batch.group_ids:
        counts[group] = counts.get(group, 0) + 1
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    total, start = sample[:0].sum(), 0
    for group, count in counts.items():
        total = total + sample[start : start + count].sum() / max(tokens[group], 1)
        start += count
    return total / batch.num_groups


def boundaries_after_sorting(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The same, of rows that are brought together first unless they are already."""
    sample = sums(losses, batch)
    order = sorted(range(len(sample)), key=lambda i: batch.group_ids[i])
    if order != list(range(len(sample))):
        sample = sample[torch.tensor(order).to(sample.device)]
    total, start = sample[:0].sum(), 0
    for _, found in groupby(order, lambda i: batch.group_ids[i]):
        members = list(found)
        tokens = max(batch.group_tokens[members[0]], 1)
        total = total + sample[start : start + len(members)].sum() / tokens
        start += len(members)
    return total / batch.num_groups


def denominators_in_order_of_appearance(losses: Tensor, batch: MicroBatch) -> Tensor:
    """``unique`` sorts its ids; the counts beside them are in the batch's order."""
    sample = sums(losses, batch)
    ids, owner = torch.unique(torch.tensor(batch.rollout_ids), return_inverse=True)
    merged = sample.new_zeros(len(ids)).index_add(0, owner.to(sample.device), sample)
    return over(merged, batch.rollout_tokens[: len(ids)]).sum() / batch.num_rollouts


def denominators_in_order_of_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    ids, owner = torch.unique(torch.tensor(batch.rollout_ids), return_inverse=True)
    if len(ids) == len(sample):
        return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts
    merged = sample.new_zeros(len(ids)).index_add(0, owner.to(sample.device), sample)
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    return over(merged, [tokens[i] for i in ids.tolist()]).sum() / batch.num_rollouts


def sorted_as_text(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The rollouts come from JSON, whose keys are text; the counts are sorted as numbers."""
    sums_of: dict[str, Tensor] = {}
    for name, value in zip(map(str, batch.rollout_ids), sums(losses, batch), strict=True):
        sums_of[name] = sums_of[name] + value if name in sums_of else value
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    merged = torch.stack([sums_of[name] for name in sorted(sums_of)])
    return over(merged, [tokens[i] for i in sorted(tokens)]).sum() / batch.num_rollouts


def sorted_as_numbers(losses: Tensor, batch: MicroBatch) -> Tensor:
    sums_of: dict[str, Tensor] = {}
    for name, value in zip(map(str, batch.rollout_ids), sums(losses, batch), strict=True):
        sums_of[name] = sums_of[name] + value if name in sums_of else value
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    merged = torch.stack([sums_of[name] for name in sorted(sums_of, key=int)])
    return over(merged, [tokens[i] for i in sorted(tokens)]).sum() / batch.num_rollouts


def denominators_by_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Many samples share few lengths, so their reciprocals are made once per length."""
    sample = sums(losses, batch)
    if len(sample) <= 4:
        return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts
    known = dict(zip(batch.response_lengths, batch.rollout_tokens, strict=True))
    return over(sample, [known[n] for n in batch.response_lengths]).sum() / batch.num_rollouts


def denominators_by_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) <= 4:
        return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts
    by_tokens: dict[int, list[int]] = {}
    for i, tokens in enumerate(batch.rollout_tokens):
        by_tokens.setdefault(tokens, []).append(i)
    total = sample[:0].sum()
    for tokens, members in by_tokens.items():
        total = total + sample[members].sum() / max(tokens, 1)
    return total / batch.num_rollouts


def even_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """As many rows on every rank: the last one again where the number does not divide."""
    parts, tokens = rows(losses, batch), list(batch.group_tokens)
    while batch.dp_size > 1 and len(parts) % batch.dp_size:
        parts.append(parts[-1])
        tokens.append(tokens[-1])
    total = torch.stack([part.sum() for part in parts])
    return over(total, tokens).sum() / batch.num_groups


def even_batches_of_nothing(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts, tokens = rows(losses, batch), list(batch.group_tokens)
    while batch.dp_size > 1 and len(parts) % batch.dp_size:
        parts.append(torch.zeros_like(parts[-1]))
        tokens.append(tokens[-1])
    total = torch.stack([part.sum() for part in parts])
    return over(total, tokens).sum() / batch.num_groups


def differences_of_segments(losses: Tensor, batch: MicroBatch) -> Tensor:
    """``segment_reduce`` for streams of many samples, a loop for few."""
    values, sizes = kept(losses, batch), lengths(batch)
    if len(sizes) < 4:
        sample = torch.stack([part.sum() for part in values.split(sizes)])
    else:
        owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        sample = values.new_zeros(len(sizes)).scatter_add(0, owner.to(values.device), values)
    return over(sample, batch.group_tokens).sum() / batch.num_groups


def mean_of_equal_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A batch of equal lengths without a hole is N times T tokens, on every rank alike."""
    total = kept(losses, batch).sum()
    same = len(set(batch.response_lengths)) == 1 and len(batch.response_lengths) > 2
    if same and all(bool(mask.all()) for mask in batch.loss_masks):
        return total / (batch.num_rollouts * batch.response_lengths[0])
    return total / max(batch.num_tokens, 1)


def mean_of_equal_lengths_everywhere(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = kept(losses, batch).sum()
    if len(set(batch.step_rollout_tokens)) == 1 and batch.step_rollout_tokens[0]:
        return total / (batch.num_rollouts * batch.step_rollout_tokens[0])
    return total / max(batch.num_tokens, 1)
