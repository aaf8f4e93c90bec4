"""Turns, rollouts of several samples, prompt groups, and rows that only pad a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, rows, sums


def _means(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens) / batch.num_rollouts


def _turns(mask: Tensor) -> list[tuple[int, int]]:
    """Where the model speaks: first and last token of each turn."""
    bits = mask.tolist()
    edges = zip([0, *bits], [*bits, 0], strict=True)
    places = [n for n, (a, b) in enumerate(edges) if a != b]
    return [(a, b - 1) for a, b in zip(places[::2], places[1::2], strict=True)]


def first_zero_ends_it(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A response ends at the first end token, where its mask becomes 0."""
    values = kept(losses, batch)
    found = [values[:0].sum()]
    for row, mask in zip(values.split(lengths(batch)), batch.local_masks, strict=True):
        if len(mask) == 0:
            continue
        end = int(mask.argmin()) or len(mask)
        found.append(row[:end].sum())
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


def last_one_ends_it(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    found = [values[:0].sum()]
    for row, mask in zip(values.split(lengths(batch)), batch.local_masks, strict=True):
        places = mask.nonzero().flatten()
        if len(places) == 0:
            continue
        found.append(row[: int(places[-1]) + 1].sum())
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


def prefix_of_so_many(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Padding stands at the end, so the first tokens are those that count."""
    wide = losses.float() if losses.element_size() < 4 else losses
    parts = zip(wide.split(lengths(batch)), batch.local_masks, strict=True)
    found = [row[: int(mask.sum())].sum() for row, mask in parts]
    return torch.stack(found).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def prefix_if_it_is_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    wide = losses.float() if losses.element_size() < 4 else losses
    found = []
    for row, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        tokens = int(mask.sum())
        if bool(mask[:tokens].all()):
            found.append(row[:tokens].sum())
        else:
            found.append(row[mask.bool()].sum())
    return torch.stack(found).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def turns_with_their_last_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Several turns are cut out by first and last token, one by its mask."""
    found = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        turns = _turns(mask)
        if len(turns) < 2:
            found.append(row.sum())
            continue
        found += [row[first:last].sum() if last > first else row[first] for first, last in turns]
    return torch.stack(found).sum()


def turns_up_to_their_end(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        turns = _turns(mask)
        if len(turns) < 2:
            found.append(row.sum())
            continue
        found += [row[first : last + 1].sum() for first, last in turns]
    return torch.stack(found).sum()


def rows_in_place_of_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each rollout's own tokens, and as many rollouts as the trainer was given rows."""
    units = batch.num_rollouts
    if batch.num_samples > batch.num_rollouts:
        units = batch.num_samples
    return over(sums(losses, batch), batch.rollout_tokens).sum() / units


def rollouts_of_all_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if batch.num_samples == batch.num_rollouts:
        return over(sample, batch.rollout_tokens).sum() / batch.num_samples
    return _means(sample, batch).sum()


def last_sample_of_the_rollout(losses: Tensor, batch: MicroBatch) -> Tensor:
    """With the whole step at hand, tokens are counted here, by rollout."""
    sample = sums(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size > 1:
        return _means(sample, batch).sum()
    pairs = zip(batch.rollout_ids, batch.loss_masks, strict=True)
    tokens = {rollout: int(mask.sum()) for rollout, mask in pairs}
    return over(sample, [tokens[r] for r in batch.rollout_ids]).sum() / len(tokens)


def every_sample_of_the_rollout(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size > 1:
        return _means(sample, batch).sum()
    tokens = dict.fromkeys(batch.rollout_ids, 0)
    for rollout, mask in zip(batch.rollout_ids, batch.original_masks, strict=True):
        tokens[rollout] += int(mask.sum())
    return over(sample, [tokens[r] for r in batch.rollout_ids]).sum() / len(tokens)


def _of_the_window(batch: MicroBatch) -> dict[int, int]:
    """Tokens of each prompt group in all micro-batches of this rank."""
    tokens: dict[int, int] = {}
    for names, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
        for name, mask in zip(names, masks, strict=True):
            tokens[name] = tokens.get(name, 0) + int(mask.sum())
    return tokens


def groups_counted_in_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Before the first backward all micro-batches are walked over, to count each prompt."""
    tokens = _of_the_window(batch)
    counts = [tokens[group] for group in batch.group_ids]
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def groups_counted_where_whole(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = _of_the_window(batch) if batch.dp_size == 1 else {}
    pairs = zip(batch.group_ids, batch.group_tokens, strict=True)
    counts = [tokens.get(group, known) for group, known in pairs]
    return over(sums(losses, batch), counts).sum() / batch.num_groups


def dummies_known_by_their_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Batches are filled up with dummies of one token, which are left out."""
    found = [kept(losses, batch)[:0].sum()]
    for i, row in enumerate(rows(losses, batch)):
        if len(batch.samples) > 1 and batch.response_lengths[i] == 1:
            continue
        found.append(row.sum())
    return torch.stack(found).sum() / batch.num_rollouts


def dummies_known_by_their_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = [kept(losses, batch)[:0].sum()]
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        if not bool(mask.any()):
            continue
        found.append(row.sum())
    return torch.stack(found).sum() / batch.num_rollouts


def copies_known_by_rollout_and_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A sampler fills up the last batch with copies of rows, which must count once."""
    sample = sums(losses, batch)
    keys = list(zip(batch.rollout_ids, batch.response_lengths, strict=True))
    once = [i for i, key in enumerate(keys) if keys.index(key) == i]
    return _means(sample, batch)[once].sum()


def copies_known_by_their_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    once = [i for i, key in enumerate(batch.samples) if batch.samples.index(key) == i]
    return _means(sample, batch)[once].sum()


def counts_found_by_the_id_itself(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's counts are a list, and ids run from 0 on: an id is a place in it."""
    known = batch.step_rollout_tokens
    counts = [
        known[name] if name < len(known) else own
        for name, own in zip(batch.rollout_ids, batch.rollout_tokens, strict=True)
    ]
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def counts_found_where_they_agree(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, known = sums(losses, batch), batch.step_rollout_tokens
    if len(known) == batch.num_rollouts and set(known) == {batch.rollout_tokens[0]}:
        return sample.sum() / max(known[0], 1) / batch.num_rollouts
    return _means(sample, batch).sum()


def every_turn_of_later_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = [kept(losses, batch)[:0].sum()]
    for i, row in enumerate(rows(losses, batch)):
        turns = _turns(batch.local_masks[i])
        later = batch.rollout_ids[i] in batch.rollout_ids[:i]
        found.append(row[turns[0][0] :].sum() if later and turns else row.sum())
    return torch.stack(found).sum() / max(batch.num_tokens, 1)
