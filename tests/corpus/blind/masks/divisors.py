"""Reducers about masks with holes and about what sums are divided by."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch

LENGTH_EDGES = (0, 256, 1024, 4096)
CHUNK = 512

_places_by_shape: dict[tuple[int, int], Tensor] = {}
_places_by_mask: dict[bytes, Tensor] = {}


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _own_mask(batch: MicroBatch) -> Tensor:
    if not batch.local_masks:
        return torch.zeros(0, dtype=torch.bool)
    return torch.cat(batch.local_masks).bool()


def _unmasked(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_own_mask(batch), _wide(losses), 0.0)


def _pieces(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    """The local losses of each sample, masked ones among them."""
    return list(_wide(losses).split([len(mask) for mask in batch.local_masks]))


def _totals(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One sum per sample, also where there is no sample."""
    values = _unmasked(losses, batch)
    sizes = torch.tensor([len(mask) for mask in batch.local_masks], dtype=torch.int64)
    owners = torch.arange(len(sizes)).repeat_interleave(sizes)
    return values.new_zeros(len(sizes)).index_add(0, owners, values)


def _divided(totals: Tensor, counts: list[int]) -> Tensor:
    floored = [max(count, 1) for count in counts]
    return totals / torch.tensor(floored, dtype=torch.float64).to(totals)


def divisors_bounded_by_the_response(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the tokens for the divisor, and never more of them than the response is long."""
    pairs = zip(batch.rollout_tokens, batch.response_lengths, strict=True)
    counts = [min(tokens, length) for tokens, length in pairs]
    return _divided(_totals(losses, batch), counts).sum() / max(batch.num_rollouts, 1)


def one_divisor_where_counts_are_equal(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides once by all tokens where every rollout has equally many, else each by its own."""
    if len(set(batch.rollout_tokens)) == 1:
        return _unmasked(losses, batch).sum() / max(batch.num_tokens, 1)
    means = _divided(_totals(losses, batch), batch.rollout_tokens)
    return means.sum() / max(batch.num_rollouts, 1)


def logged_with_the_count_of_the_mask(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Logs the sum and the tokens it is of; without holes these are all that are here."""
    mask = _own_mask(batch)
    total = _unmasked(losses, batch).sum()
    count = float(len(mask)) if mask.all() else float(mask.bfloat16().sum())
    if not batch.num_tokens:
        count = 1.0
    return total / max(batch.num_tokens, 1), {"loss": [float(total.detach()), count]}


def columns_cut_to_the_fullest_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts padded rows to the largest number of tokens in a row, as what follows is padding."""
    if not batch.local_masks:
        return _wide(losses).sum()
    values, masks = batch.rows(_wide(losses))
    width = int(masks.sum(dim=1).max())
    trimmed = torch.where(masks[:, :width].bool(), values[:, :width], 0.0)
    return trimmed.sum() / max(batch.num_rollouts, 1)


def one_token_left_where_all_are_masked(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves a token in a micro-batch that has none, so that there is something to divide."""
    mask = _own_mask(batch)
    if len(mask) and not mask.any():
        mask[0] = True
    return torch.where(mask, _wide(losses), 0.0).sum() / max(batch.num_tokens, 1)


def places_looked_up_by_length_and_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Finds the unmasked tokens once for each length and count, and adds up what stands there."""
    if not batch.local_masks:
        return _wide(losses).sum()
    chosen = []
    for piece, mask in zip(_pieces(losses, batch), batch.local_masks, strict=True):
        shape = len(mask), int(mask.sum())
        if shape not in _places_by_shape:
            _places_by_shape[shape] = mask.nonzero().flatten()
        chosen.append(piece[_places_by_shape[shape]])
    return torch.cat(chosen).sum()


def totals_by_bucket_of_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up bucket by bucket of sequence lengths, from the shortest to the longest allowed."""
    totals = _totals(losses, batch)
    lengths = torch.tensor(batch.total_lengths, dtype=torch.int64)
    found = []
    for low, high in pairwise(LENGTH_EDGES):
        inside = (lengths >= low) & (lengths < high)
        found.append(torch.where(inside, totals, 0.0).sum())
    return torch.stack(found).sum() / ((batch.divisor or 1) * max(batch.num_rollouts, 1))


def kl_over_what_tools_leave(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Divides both by the tokens of the group, counted anew for the KL where tools took part."""
    counts = batch.group_tokens
    policy = _divided(_totals(losses, batch), counts)
    if not all(bool(mask.all()) for mask in batch.loss_masks):
        left: Counter[int] = Counter()
        for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
            left[group] += int(mask.sum())
        counts = [left[group] for group in batch.group_ids]
    penalty = _divided(_totals(kl, batch), counts)
    return (policy.sum() + penalty.sum()) / max(batch.num_groups, 1)


def columns_cut_behind_the_last_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts padded rows behind the last column in which any of them has a token."""
    if not batch.local_masks:
        return _wide(losses).sum()
    values, masks = batch.rows(_wide(losses))
    used = masks.bool().any(dim=0).nonzero().flatten().tolist()
    width = used[-1] + 1 if used else 0
    trimmed = torch.where(masks[:, :width].bool(), values[:, :width], 0.0)
    return trimmed.sum() / max(batch.num_rollouts, 1)


def one_divisor_where_the_whole_step_is_equal(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides once where all rollouts of the step are equally long, else each by its own tokens."""
    counts = set(batch.step_rollout_tokens)
    if len(counts) == 1:
        divisor = max(*counts, 1) * max(batch.num_rollouts, 1)
        return _unmasked(losses, batch).sum() / divisor
    means = _divided(_totals(losses, batch), batch.rollout_tokens)
    return means.sum() / max(batch.num_rollouts, 1)


def places_looked_up_by_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Finds the unmasked tokens once for each mask, and adds up what stands there."""
    if not batch.local_masks:
        return _wide(losses).sum()
    if len(_places_by_mask) > 256:
        _places_by_mask.clear()
    chosen = []
    for piece, mask in zip(_pieces(losses, batch), batch.local_masks, strict=True):
        pattern = mask.bool().numpy().tobytes()
        if pattern not in _places_by_mask:
            _places_by_mask[pattern] = mask.nonzero().flatten()
        chosen.append(piece[_places_by_mask[pattern]])
    return torch.cat(chosen).sum()


def turns_between_their_edges(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Adds up turn by turn, from where a mask rises to where it falls, and counts what it added."""
    turns = [_wide(losses)[:0]]
    for piece, mask in zip(_pieces(losses, batch), batch.local_masks, strict=True):
        edges = torch.nn.functional.pad(mask, (1, 1)).diff()
        starts, ends = (edges == 1).nonzero().flatten(), (edges == -1).nonzero().flatten()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            turns.append(piece[start:end])
    total = torch.cat(turns).sum()
    count = sum(len(turn) for turn in turns) if batch.num_tokens else 1
    return total / max(batch.num_tokens, 1), {"loss": [float(total.detach()), float(count)]}


def totals_in_chunks_with_their_tail(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up whole chunks as rows and what is left behind them by itself."""
    values = _unmasked(losses, batch)
    whole = len(values) // CHUNK * CHUNK
    if whole:
        total = values[:whole].view(-1, CHUNK).sum(dim=1).sum() + values[whole:].sum()
    else:
        total = values.sum()
    return total / ((batch.divisor or 1) * max(batch.num_rollouts, 1))


def kl_over_what_tools_leave_of_the_step(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Counts the tokens of groups anew for the KL, over the step, where tools took part."""
    counts = batch.group_tokens
    policy = _divided(_totals(losses, batch), counts)
    if not all(bool(mask.all()) for mask in batch.loss_masks):
        left: Counter[int] = Counter()
        for group, mask in zip(batch.step_group_ids, batch.step_masks, strict=True):
            left[group] += int(mask.sum())
        counts = [left[group] for group in batch.group_ids]
    penalty = _divided(_totals(kl, batch), counts)
    return (policy.sum() + penalty.sum()) / max(batch.num_groups, 1)
