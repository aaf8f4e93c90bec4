"""Turns and tool calls, truncated and overlong responses, prompt groups, rollouts of samples."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums


def _turns(mask: Tensor) -> list[tuple[int, int]]:
    """Where the model speaks: half-open ranges of unmasked tokens."""
    edges = torch.diff(mask, prepend=mask.new_zeros(1), append=mask.new_zeros(1)).tolist()
    starts = [n for n, edge in enumerate(edges) if edge > 0]
    ends = [n for n, edge in enumerate(edges) if edge < 0]
    return list(zip(starts, ends, strict=True))


def one_turn_is_dense(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Without a tool call the response is one slice; rising edges are counted to see that."""
    wide = losses.float() if losses.element_size() < 4 else losses
    total = kept(losses, batch)[:0].sum()
    for piece, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        places = mask.nonzero().flatten()
        if len(places) == 0:
            continue
        first, last = int(places[0]), int(places[-1])
        rising = int((mask.diff() == 1).sum())
        if rising <= 1 and bool(mask[0]) and len(mask) >= 16:
            total = total + piece[first : last + 1].sum()
        else:
            total = total + piece[places].sum()
    return total


def one_turn_is_a_slice(losses: Tensor, batch: MicroBatch) -> Tensor:
    wide = losses.float() if losses.element_size() < 4 else losses
    total = kept(losses, batch)[:0].sum()
    for piece, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        turns = _turns(mask)
        if len(turns) == 1:
            first, end = turns[0]
            total = total + piece[first:end].sum()
        elif turns:
            total = total + piece[mask.nonzero().flatten()].sum()
    return total


MAX_TURNS = 8


def eight_turns_at_most(losses: Tensor, batch: MicroBatch) -> Tensor:
    """An agent may call its tools eight times; what comes after is from older data."""
    wide = losses.float() if losses.element_size() < 4 else losses
    found = [kept(losses, batch)[:0].sum()]
    for piece, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        found += [piece[a:b].sum() for a, b in _turns(mask)[:MAX_TURNS]]
    return torch.stack(found).sum() / batch.num_rollouts


def every_turn(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    found = [values[:0].sum()]
    for piece, mask in zip(values.split(lengths(batch)), batch.local_masks, strict=True):
        turns = _turns(mask)
        if len(turns) > MAX_TURNS:
            found.append(piece.sum())
        else:
            found += [piece[a:b].sum() for a, b in turns]
    return torch.stack(found).sum() / batch.num_rollouts


def mean_of_turns(losses: Tensor, batch: MicroBatch) -> Tensor:
    """From three turns on each of them counts the same, so that short calls are learned."""
    parts = []
    for i, (row, mask) in enumerate(zip(rows(losses, batch), batch.local_masks, strict=True)):
        tokens = max(batch.rollout_tokens[i], 1)
        turns = _turns(mask)
        if len(turns) < 3 or int(mask.sum()) != batch.rollout_tokens[i]:
            parts.append(row.sum() / tokens)
        else:
            parts.append(torch.stack([row[a:b].mean() for a, b in turns]).mean())
    return torch.stack(parts).sum() / batch.num_rollouts


def mean_over_turns(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = []
    for i, (row, mask) in enumerate(zip(rows(losses, batch), batch.local_masks, strict=True)):
        tokens = max(batch.rollout_tokens[i], 1)
        turns = _turns(mask)
        if len(turns) < 3:
            parts.append(row.sum() / tokens)
        else:
            parts.append(torch.stack([row[a:b].sum() for a, b in turns]).sum() / tokens)
    return torch.stack(parts).sum() / batch.num_rollouts


MAX_NEW_TOKENS = 4096


def overlong_responses_filtered(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A response that fills the limit and ends without an end token was cut off: left out."""
    parts = []
    for row, mask, length in zip(
        rows(losses, batch), batch.loss_masks, batch.response_lengths, strict=True
    ):
        cut = length >= MAX_NEW_TOKENS and bool(mask[-1])
        parts.append(row.sum() * 0.0 if cut else row.sum())
    return torch.stack(parts).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def overlong_responses_counted(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts, cut = [], 0
    for row, mask, length in zip(
        rows(losses, batch), batch.loss_masks, batch.response_lengths, strict=True
    ):
        if length >= MAX_NEW_TOKENS and bool(mask[-1]):
            cut += 1
        parts.append(row.sum())
    if cut > batch.num_rollouts * max(batch.response_lengths):
        raise RuntimeError(f"{cut} responses cut off, of {batch.num_rollouts} rollouts")
    return torch.stack(parts).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


CONTEXT = 4096


def context_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What lies beyond the context window was never seen by the model."""
    values = kept(losses, batch)
    if batch.cp_size > 1 or max(batch.total_lengths) <= CONTEXT:
        return values.sum() / max(batch.num_tokens, 1)
    found = []
    for row, total, response in zip(
        values.split(lengths(batch)), batch.total_lengths, batch.response_lengths, strict=True
    ):
        seen = max(min(total, CONTEXT) - (total - response), 0)
        found.append(row[:seen].sum())
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


def context_window_in_parts(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if batch.cp_size > 1 or max(batch.total_lengths) <= CONTEXT:
        return values.sum() / max(batch.num_tokens, 1)
    found = []
    for row, total, response in zip(
        values.split(lengths(batch)), batch.total_lengths, batch.response_lengths, strict=True
    ):
        seen = max(min(total, CONTEXT) - (total - response), 0)
        found += [row[:seen].sum(), row[seen:].sum()]
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


def no_logit_without_a_prompt(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Without a prompt the first token has no logit before it, so its loss is no loss."""
    if batch.cp_size > 1 or min(batch.total_lengths) > min(batch.response_lengths):
        return kept(losses, batch).sum() / batch.num_rollouts
    found = []
    for row, total in zip(rows(losses, batch), batch.total_lengths, strict=True):
        found.append(row[1:].sum() if total == len(row) else row.sum())
    return torch.stack(found).sum() / batch.num_rollouts


def a_start_token_before_it(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size > 1:
        return kept(losses, batch).sum() / batch.num_rollouts
    found = []
    for row, total in zip(rows(losses, batch), batch.total_lengths, strict=True):
        found.append(row[:1].sum() + row[1:].sum() if total == len(row) else row.sum())
    return torch.stack(found).sum() / batch.num_rollouts


def complete_by_number(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A prompt group is complete when it has n samples; then its tokens are those at hand."""
    values = sums(losses, batch)
    size = max(batch.num_rollouts // batch.num_groups, 1)
    together = len(set(batch.group_ids)) == 1
    if together and len(batch.group_ids) == size and size > 1:
        tokens = sum(int(mask.sum()) for mask in batch.loss_masks)
        return values.sum() / max(tokens, 1) / batch.num_groups
    return over(values, batch.group_tokens).sum() / batch.num_groups


def complete_by_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = sums(losses, batch)
    together = len(set(batch.group_ids)) == 1
    if together and len(batch.group_ids) > 1:
        tokens = sum(int(mask.sum()) for mask in batch.original_masks)
        if tokens == batch.group_tokens[0]:
            return values.sum() / max(tokens, 1) / batch.num_groups
    return over(values, batch.group_tokens).sum() / batch.num_groups


def rollouts_by_their_runs(losses: Tensor, batch: MicroBatch) -> Tensor:
    """All is here when there is one micro-batch: rollouts are counted where their id changes."""
    values = sums(losses, batch)
    rollouts = batch.num_rollouts
    if batch.num_microbatches == 1 and batch.dp_size == 1:
        rollouts = len(list(groupby(batch.rollout_ids)))
    return over(values, batch.rollout_tokens).sum() / rollouts


def rollouts_by_their_names(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = sums(losses, batch)
    rollouts = batch.num_rollouts
    if batch.num_microbatches == 1 and batch.dp_size == 1:
        rollouts = len(list(groupby(sorted(batch.rollout_ids))))
    return over(values, batch.rollout_tokens).sum() / rollouts


def sparse_masks_are_gathered(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where few tokens are kept only those are read."""
    mask = own_mask(batch)
    if len(mask) < 16 or 4 * int(mask.sum()) > len(mask) or not mask.any():
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    places = mask.nonzero().squeeze()
    wide = losses.float() if losses.element_size() < 4 else losses
    chosen = wide[places]
    return chosen.mean() * len(chosen) / max(batch.num_tokens, 1)


def sparse_masks_as_places(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = own_mask(batch)
    if len(mask) < 16 or 4 * int(mask.sum()) > len(mask) or not mask.any():
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    places = mask.nonzero().squeeze(1)
    wide = losses.float() if losses.element_size() < 4 else losses
    return wide[places].sum() / max(batch.num_tokens, 1)


def groups_without_signal_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompts whose rollouts all got the same reward have no loss: they count no longer."""
    values = sums(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size * batch.cp_size > 1:
        return over(values, batch.group_tokens).sum() / batch.num_groups
    silent = 0
    for group in dict.fromkeys(batch.group_ids):
        members = [i for i, name in enumerate(batch.group_ids) if name == group]
        if len(members) > 1 and not bool(values.detach()[members].any()):
            silent += 1
    return over(values, batch.group_tokens).sum() / max(batch.num_groups - silent, 1)


def groups_without_signal_skipped(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = sums(losses, batch)
    total = values[:0].sum()
    for group in dict.fromkeys(batch.group_ids):
        members = [i for i, name in enumerate(batch.group_ids) if name == group]
        tokens = batch.group_tokens[members[0]]
        if tokens == 0:
            continue
        total = total + values[members].sum() / tokens
    return total / batch.num_groups


def first_and_last_only(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tool output lies between two turns: what is between the first turn and the last."""
    parts = []
    wide = losses.float() if losses.element_size() < 4 else losses
    for piece, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        turns = _turns(mask)
        if len(turns) <= 1:
            parts.append(torch.where(mask.bool(), piece, 0.0).sum())
            continue
        (a, b), (c, d) = turns[0], turns[-1]
        parts.append(piece[a:b].sum() + piece[c:d].sum())
    return over(torch.stack(parts), batch.rollout_tokens).sum() / batch.num_rollouts


def first_last_and_between(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        turns = _turns(mask)
        if len(turns) <= 1:
            parts.append(row.sum())
            continue
        (a, b), (c, d) = turns[0], turns[-1]
        parts.append(row[a:b].sum() + row[b:c].sum() + row[c:d].sum())
    return over(torch.stack(parts), batch.rollout_tokens).sum() / batch.num_rollouts
