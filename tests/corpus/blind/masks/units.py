"""Reducers about masks and divisors: holes, turns, positions, floors, budgets and units."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

MODEL_LENGTH = 4096
TURNS = 16
BUDGET = 512


def _owners(batch: MicroBatch) -> Tensor:
    """Of each local token, which sample it is of."""
    return torch.arange(len(batch.local_masks)).repeat_interleave(torch.tensor(lengths(batch)))


def _run_sums(values: Tensor, breaks: Tensor) -> tuple[Tensor, Tensor]:
    """One sum per run, and which values begin one; ``breaks`` stand between neighbours."""
    begins = torch.cat([torch.ones(1, dtype=torch.bool), breaks])
    run = begins.cumsum(0) - 1
    return values.new_zeros(int(run[-1]) + 1).index_add(0, run, values), begins


def _turn_of(mask: Tensor) -> Tensor:
    """The turn each token is in, from 1: a turn begins where the mask goes from 0 to 1."""
    return mask.diff(prepend=mask.new_zeros(1)).clamp(min=0).cumsum(0)


def unbroken_stretches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """With holes in the mask, adds up each unbroken stretch and divides it by its rollout."""
    mask, values = own_mask(batch), kept(losses, batch)
    if mask.all():
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    places = mask.nonzero()[:, 0]
    if not len(places):
        return values.sum()
    stretches, begins = _run_sums(values[places], places.diff() > 1)
    counts = [batch.rollout_tokens[i] for i in _owners(batch)[places][begins].tolist()]
    return over(stretches, counts).sum() / batch.num_rollouts


def stretches_of_each_sample(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up each stretch of trained tokens of a sample and divides it by its rollout's count."""
    places, values = own_mask(batch).nonzero()[:, 0], kept(losses, batch)
    if not len(places):
        return values.sum()
    owners = _owners(batch)[places]
    breaks = (places.diff() > 1) | (owners.diff() != 0)
    stretches, begins = _run_sums(values[places], breaks)
    counts = [batch.rollout_tokens[i] for i in owners[begins].tolist()]
    return over(stretches, counts).sum() / batch.num_rollouts


def table_of_turns(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up the model's turns of every sample in a table and divides by the prompt's tokens."""
    table = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        turn = _turn_of(mask)
        inside = mask.bool() & (turn <= TURNS)
        slots = row.new_zeros(TURNS)
        table.append(slots.index_add(0, turn[inside] - 1, row[inside]))
    per_sample = torch.stack(table).sum(dim=1)
    return over(per_sample, batch.group_tokens).sum() / batch.num_groups


def growing_table_of_turns(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up the turns of every sample in a growing table and divides by the prompt's tokens."""
    per_sample = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        turn = _turn_of(mask)
        last = int(turn[-1]) if len(turn) else 0
        # Slot 0 takes what stands before the first turn, which is zeros.
        slots = row.new_zeros(max(TURNS, last + 1)).index_add(0, turn, row)
        per_sample.append(slots.sum())
    return over(torch.stack(per_sample), batch.group_tokens).sum() / batch.num_groups


def rows_up_to_their_end(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pads the samples to rows and keeps the trained positions before the end of each."""
    padded, masks = batch.rows(losses)
    position = torch.arange(padded.shape[1], dtype=losses.dtype)
    ends = losses.new_tensor(lengths(batch))
    inside = (position < ends[:, None]) & masks.bool()
    wide = padded.float() if padded.element_size() < 4 else padded
    return torch.where(inside, wide, 0.0).sum() / batch.num_rollouts


def rows_from_the_left(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pads rows on the left to the step's width and keeps the trained positions of each."""
    padded, masks = batch.rows(losses, side="left", width="step")
    width = padded.shape[1]
    begins = torch.tensor([width - n for n in lengths(batch)])
    inside = (torch.arange(width) >= begins[:, None]) & masks.bool()
    wide = padded.float() if padded.element_size() < 4 else padded
    return torch.where(inside, wide, 0.0).sum(dim=1).sum() / batch.num_rollouts


def inside_the_model_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up what lies inside the model's context length, prompt included."""
    total = kept(losses, batch)[:0].sum()
    pieces, places = rows(losses, batch), batch.local_positions
    prompts = [t - r for t, r in zip(batch.total_lengths, batch.response_lengths, strict=True)]
    for piece, place, prompt in zip(pieces, places, prompts, strict=True):
        total = total + piece[place + prompt < MODEL_LENGTH].sum()
    return total


def pieces_of_a_budget(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the losses up in pieces of a token budget, skipping those without a trained token."""
    values = kept(losses, batch)
    total = values[:0].sum()
    for piece, mask in zip(values.split(BUDGET), own_mask(batch).split(BUDGET), strict=True):
        if mask.any():
            total = total + piece.sum()
    return total


def mean_of_what_is_left(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A rollout that lies here with holes is averaged over the entries that its mask has left."""
    shares = []
    whole = zip(rows(losses, batch), batch.local_masks, batch.rollout_tokens, strict=True)
    for row, mask, count in whole:
        here = int(mask.sum())
        if here < len(mask) and here == count:
            left = row[row != 0]
            shares.append(left.mean() if len(left) else row.sum())
        else:
            shares.append(row.sum() / max(count, 1))
    return torch.stack(shares).sum() / batch.num_rollouts


def sum_beside_its_count(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[float]]]:
    """Divides by the step's tokens, and logs the sum here beside its count, which is never 0."""
    total = kept(losses, batch).sum()
    here = int(own_mask(batch).sum())
    log = {"loss": [float(total.detach()), float(max(here, 1))]}
    return total / max(batch.num_tokens, 1), log


def trimmed_behind_the_last_token(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Cuts every sample behind its last trained token, adds up, and logs the share of the step."""
    values = kept(losses, batch)
    total = size = values[:0].sum()
    for row, mask in zip(values.split(lengths(batch)), batch.local_masks, strict=True):
        trained = mask.nonzero()
        if len(trained):
            trimmed = row[: int(trained[-1]) + 1]
            total, size = total + trimmed.sum(), size + trimmed.detach().abs().sum()
    loss = total / max(batch.num_tokens, 1)
    return loss, {"loss": loss.detach(), "size": size.detach() / max(batch.num_tokens, 1)}


def longest_rows_together(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sorts by length and pads the longer and the shorter half apart, which saves memory."""
    longest_first = sorted(rows(losses, batch), key=len, reverse=True)
    places = range(len(longest_first))
    order = sorted(places, key=lambda i: batch.response_lengths[i], reverse=True)
    half = (len(order) + 1) // 2
    halves = [part for part in (longest_first[:half], longest_first[half:]) if part]
    totals = torch.cat([pad_sequence(part, batch_first=True).sum(dim=1) for part in halves])
    return over(totals, [batch.group_tokens[i] for i in order]).sum() / batch.num_groups


def rollouts_of_kept_prompts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the rollouts of the prompts that were kept: one without a token was filtered out."""
    masks = zip(batch.step_group_ids, batch.step_masks, strict=True)
    live = {group for group, mask in masks if mask.any()}
    rollouts = max(batch.num_rollouts * len(live) / batch.num_groups, 1)
    assert batch.divisor is not None
    return kept(losses, batch).sum() / (batch.divisor * rollouts)


def picked_where_few_are_trained(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Picks the trained tokens out where they are few, and blanks the others where they are not."""
    mask = own_mask(batch)
    places = mask.nonzero()[:, 0]
    assert batch.divisor is not None
    divisor = batch.divisor * batch.num_rollouts
    if 2 * len(places) < len(mask):
        policy, penalty = losses[places], kl[places]
        if losses.element_size() < 4:
            policy, penalty = policy.float(), penalty.float()
        return policy.sum() / divisor + penalty.sum() / divisor
    return kept(losses, batch).sum() / divisor + kept(kl, batch).sum() / divisor
