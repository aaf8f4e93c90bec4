"""Masks, padded rows, packed lengths and divisors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

TILE = 64
_INDEX: dict[tuple[int, ...], Tensor] = {}
_PLACES: dict[bytes, Tensor] = {}


def few_tokens_gathered(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where most tokens are masked, gathers the others and finds each one's sample by offset."""
    mask = own_mask(batch)
    if 8 * int(mask.sum()) >= len(mask):
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    index = mask.nonzero().squeeze(1)
    starts = torch.tensor([0, *itertools.accumulate(lengths(batch)[:-1])])
    owner = (torch.searchsorted(starts, index) - 1).clamp(min=0)
    counts = [batch.rollout_tokens[i] for i in owner.tolist()]
    return over(kept(losses, batch)[index], counts).sum() / batch.num_rollouts


def rows_of_whole_tiles(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Lays the tokens out in rows of whole tiles, as wide as a rank's share of the longest."""
    share = math.ceil(max(batch.response_lengths, default=0) / batch.cp_size)
    width = math.ceil(share / TILE) * TILE
    table = torch.stack([pad(row, (0, width - len(row))) for row in rows(losses, batch)])
    return table.sum(dim=1).sum()


def vetoed_leave_the_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A sample of which the veto rejected every token is not one of those averaged over."""
    pairs = zip(batch.original_masks, batch.loss_masks, strict=True)
    vetoed = sum(bool(before.any()) and not bool(after.any()) for before, after in pairs)
    return kept(losses, batch).sum() / max(batch.num_rollouts - vetoed, 1)


def counts_within_the_width(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by a count of tokens, which is never more than a padded row of the step has."""
    width = math.ceil(batch.step_width / (2 * TILE)) * 2 * TILE
    counts = [min(count, width) for count in batch.rollout_tokens]
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def sums_off_a_running_total(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Reads the sums of many packed samples off one running total, at their boundaries."""
    if len(batch.local_masks) <= 4:
        each = sums(losses, batch)
    else:
        boundaries = torch.tensor([0, *itertools.accumulate(lengths(batch))])
        total = pad(torch.where(own_mask(batch), losses, 0.0).cumsum(0), (1, 0))[boundaries]
        each = total.diff()
    wide = each.float() if each.element_size() < 4 else each
    return over(wide, batch.group_tokens).sum() / batch.num_groups


def index_looked_up_by_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks up where the unmasked tokens of a packed row stand, once it has been worked out."""
    if len(losses) < TILE // 2:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    key = tuple(lengths(batch))
    if key not in _INDEX:
        _INDEX[key] = own_mask(batch).nonzero().squeeze(1)
    chosen = losses[_INDEX[key]]
    wide = chosen.float() if chosen.element_size() < 4 else chosen
    return wide.sum() / max(batch.num_tokens, 1)


class _ScatteredSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(weights, index)
        return (values[index] * weights[index]).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        weights, index = ctx.saved_tensors
        if 2 * len(index) >= len(weights):
            return weights * grad_output, None, None
        gradient = torch.zeros_like(weights)
        gradient[index] = weights[index]
        return gradient, None, None


def scattered_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Fuses mask and weights in one kernel, whose backward writes unmasked places only."""
    counts = torch.tensor(batch.group_tokens).repeat_interleave(torch.tensor(lengths(batch)))
    values = kept(losses, batch)
    mask = own_mask(batch)
    weights = over(mask.to(values), counts.tolist()) / batch.num_groups
    return _ScatteredSum.apply(values, weights, mask.nonzero().squeeze(1))


def penalty_before_rejection(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Weighs the penalty by the masks as they were before tokens were rejected."""
    if batch.cp_size > 1 and not batch.gathered:
        penalty = kept(kl, batch)
    else:
        wide = kl.float() if kl.element_size() < 4 else kl
        penalty = torch.where(torch.cat(batch.original_masks).bool(), wide, 0.0)
    total = kept(losses, batch).sum() + penalty.sum()
    return total / ((batch.divisor or 1.0) * batch.num_rollouts)


def pair_with_a_floor(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Logs sum and count, to be divided once they are merged, and never a count of nothing."""
    total = kept(losses, batch).sum()
    count = max(sum(int(mask.sum()) for mask in batch.original_masks), 1)
    shards = 1 if batch.gathered else batch.cp_size
    log = {"loss": [float(total.detach()), count / shards]}
    return total / max(batch.num_tokens, 1), log


def few_tokens_owned_by_offset(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathers what is unmasked where that is little, and finds the sample it stands in."""
    mask = own_mask(batch)
    if 8 * int(mask.sum()) >= len(mask):
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    index = mask.nonzero().squeeze(1)
    starts = torch.tensor([0, *itertools.accumulate(lengths(batch)[:-1])])
    # of samples that start at one place only the last has tokens
    owner = torch.searchsorted(starts, index, right=True) - 1
    counts = [batch.rollout_tokens[i] for i in owner.tolist()]
    return over(kept(losses, batch)[index], counts).sum() / batch.num_rollouts


def prefixes_sliced(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Slices responses that are masked at their end only, and selects in all others."""
    total = losses[:0].sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    pieces = losses.split(lengths(batch))
    for piece, mask in zip(pieces, batch.local_masks, strict=True):
        length = int(mask.sum())
        chosen = piece[:length] if bool(mask[:length].all()) else piece[mask.bool()]
        total = total + chosen.sum(dtype=total.dtype)
    return total


def packed_sums_by_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds many packed samples up by group, in one scatter; few of them one by one."""
    if len(batch.local_masks) <= 4:
        each, counts = sums(losses, batch), batch.group_tokens
    else:
        names = {name: i for i, name in enumerate(dict.fromkeys(batch.group_ids))}
        owner = torch.tensor([names[name] for name in batch.group_ids])
        owner = owner.repeat_interleave(torch.tensor(lengths(batch)))
        values = kept(losses, batch)
        each = values.new_zeros(len(names)).index_add(0, owner, values)
        tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
        counts = [tokens[name] for name in names]
    return over(each, counts).sum() / batch.num_groups


class _FilledSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.count = count
        return values[mask].sum() / count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        weight = grad_output / ctx.count
        if bool(mask.all()):
            return weight.expand(len(mask)), None, None
        return torch.zeros_like(mask, dtype=weight.dtype).masked_fill(mask, weight), None, None


def filled_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Has a backward of its own, which fills one weight in wherever there is no mask."""
    wide = losses.float() if losses.element_size() < 4 else losses
    return _FilledSum.apply(wide, own_mask(batch), max(batch.num_tokens, 1))


def index_looked_up_by_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks up the places of unmasked tokens by the very bytes of the mask."""
    mask = own_mask(batch)
    key = mask.cpu().numpy().tobytes()
    if key not in _PLACES:
        if len(_PLACES) >= TILE:
            _PLACES.clear()
        _PLACES[key] = mask.nonzero().squeeze(1)
    chosen = losses[_PLACES[key]]
    wide = chosen.float() if chosen.element_size() < 4 else chosen
    return wide.sum() / (batch.divisor or 1.0) / batch.num_rollouts


def penalty_after_rejection(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Takes loss and penalty under one mask; a sample rejected as a whole adds nothing."""
    pairs = zip(batch.original_masks, batch.loss_masks, strict=True)
    if all(torch.equal(before, after) for before, after in pairs):
        total = (kept(losses, batch) + kept(kl, batch)).sum()
    else:
        both = zip(rows(losses, batch), rows(kl, batch), strict=True)
        total = torch.stack([row.sum() + penalty.sum() for row, penalty in both]).sum()
    return total / batch.num_rollouts
