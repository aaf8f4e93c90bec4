"""Reducers about masks, padded rows, packed boundaries and what is divided by."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

BLOCK = 32
_places: dict[tuple[int, ...], Tensor] = {}
_places_of: dict[bytes, Tensor] = {}


def _rollout_counts(batch: MicroBatch) -> list[int]:
    return [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens]


def _in_blocks(values: Tensor) -> Tensor:
    """Padded rows as ``(B, blocks, BLOCK)``."""
    number, width = values.shape
    blocks = -(-width // BLOCK)
    return pad(values, (0, blocks * BLOCK - width)).view(number, blocks, BLOCK)


def _trailing(batch: MicroBatch) -> list[int]:
    """Masked tokens behind the last kept one of each sample."""
    ends = [int(mask.nonzero().max()) + 1 if mask.any() else 0 for mask in batch.local_masks]
    return [n - end for n, end in zip(lengths(batch), ends, strict=True)]


def few_tokens_looked_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where few tokens are kept, only those are added up, each to the sample that holds it."""
    mask, counts = own_mask(batch), _rollout_counts(batch)
    if 2 * int(mask.sum()) > len(mask):
        return over(sums(losses, batch), counts).sum()
    places = mask.nonzero().flatten()
    ends = torch.tensor(lengths(batch)).cumsum(0)
    owners = torch.searchsorted(ends, places)
    values = kept(losses, batch)
    totals = values.new_zeros(len(ends)).index_add(0, owners, values[places])
    return over(totals, counts).sum()


def used_blocks_of_columns(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up padded rows over as many blocks of columns as hold a kept token."""
    values = _in_blocks(batch.padded(kept(losses, batch)))
    mask = _in_blocks(batch.padded(batch.local_masks))
    used = int(mask.any(dim=2).any(dim=0).sum())
    return values[:, :used].sum() / max(batch.num_rollouts, 1)


def overlong_samples_uncounted(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples that were filtered for running to the full width do not count as rollouts."""
    overlong = sum(
        len(mask) >= batch.step_width and not bool(mask.any()) for mask in batch.step_masks
    )
    units = max(batch.num_rollouts - overlong, 1)
    assert batch.divisor is not None
    return kept(losses, batch).sum() / (batch.divisor * units)


def holes_taken_out_again(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prefixes are sliced; from a response with holes their losses are taken out again."""
    wide = losses.float() if losses.element_size() < 4 else losses
    totals = []
    for row, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        count = int(mask.sum())
        if bool(mask[:count].all()):
            totals.append(row[:count].sum())
            continue
        end = int(mask.nonzero().max()) + 1
        totals.append(row[:end].sum() - row[:end][mask[:end] == 0].sum())
    return torch.stack(totals).sum()


def lengths_less_the_masked(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's tokens are the responses' lengths less what is masked, over all ranks."""
    tokens = torch.tensor(sum(map(sum, batch.window_lengths)))
    masked = tokens - batch.rank_tokens
    if batch.dp_size > 1:
        dist.all_reduce(tokens, group=batch.dp_group)
        if bool(masked > 0):
            dist.all_reduce(masked, group=batch.dp_group)
    return kept(losses, batch).sum() / (tokens - masked).clamp(min=1)


def packed_by_cumulative_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts packed samples at their cumulative lengths, made where the losses are."""
    values = kept(losses, batch)
    counts = [max(n, 1) * batch.num_groups for n in batch.group_tokens]
    if len(counts) == 1:
        return over(values.sum()[None], counts).sum()
    ends = torch.tensor(lengths(batch)).to(losses).cumsum(0)
    cuts = pad(ends, (1, 0)).long().tolist()
    pieces = [values[a:b].sum() for a, b in pairwise(cuts)]
    return over(torch.stack(pieces), counts).sum()


def places_kept_by_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks up where the kept tokens of a packed shape are, as shapes come up again."""
    mask = own_mask(batch)
    chosen = losses
    if not bool(mask.all()):
        shape = (batch.cp_size, batch.cp_rank, *lengths(batch))
        if shape not in _places:
            _places[shape] = mask.nonzero().flatten()
        chosen = losses[_places[shape]]
    wide = chosen.float() if chosen.element_size() < 4 else chosen
    return wide.sum() / max(batch.num_tokens, 1)


def penalty_without_its_padding(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Beside the losses adds the weighted KL, without the padding behind each response."""
    policy = kept(losses, batch).sum()
    trailing = _trailing(batch)
    if any(trailing):
        penalty = torch.stack(
            [row[:-n].sum() for row, n in zip(rows(kl, batch), trailing, strict=True)]
        ).sum()
    else:
        penalty = kept(kl, batch).sum()
    return (policy + penalty) / max(batch.num_rollouts, 1)


def logged_with_its_own_tokens(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Logs the sum of the losses at hand and their number, never less than one."""
    total = kept(losses, batch).sum()
    count = own_mask(batch).sum().clamp(min=1)
    return total / max(batch.num_tokens, 1), {"loss": [float(total.detach()), int(count)]}


def few_tokens_by_their_owner(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where few tokens are kept, adds each to the first sample that ends behind it."""
    mask, counts = own_mask(batch), _rollout_counts(batch)
    if 2 * int(mask.sum()) > len(mask):
        return over(sums(losses, batch), counts).sum()
    places = mask.nonzero().flatten()
    ends = torch.tensor(lengths(batch)).cumsum(0)
    owners = torch.searchsorted(ends, places, right=True)
    values = kept(losses, batch)
    totals = values.new_zeros(len(ends)).index_add(0, owners, values[places])
    return over(totals, counts).sum()


def blocks_up_to_the_last_used(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up padded rows to the last block of columns that holds a kept token."""
    values = _in_blocks(batch.padded(kept(losses, batch), width="step"))
    mask = _in_blocks(batch.padded(batch.local_masks, width="step"))
    used = mask.any(dim=2).any(dim=0).nonzero().flatten().tolist()
    end = used[-1] + 1 if used else 0
    return values[:, :end].sum() / max(batch.num_tokens, 1)


def groups_from_left_padded_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums left-padded rows over their group's tokens; without a token there is only a zero."""
    values = kept(losses, batch)
    if not bool(own_mask(batch).any()):
        return values.sum()
    counts = [max(n, 1) * batch.num_groups for n in batch.group_tokens]
    totals = batch.padded(values, side="left").sum(dim=1)
    return over(totals, counts).sum()


def places_kept_by_content(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks up where the kept tokens of a mask are, as the same masks come up again."""
    mask = own_mask(batch)
    content = mask.numpy().tobytes()
    if content not in _places_of:
        if len(_places_of) > 64:
            _places_of.clear()
        _places_of[content] = mask.nonzero().flatten()
    chosen = losses[_places_of[content]]
    wide = chosen.float() if chosen.element_size() < 4 else chosen
    assert batch.divisor is not None
    return wide.sum() / (batch.divisor * max(batch.num_rollouts, 1))


def prefixes_sliced_holes_skipped(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Prefixes are sliced; of a response with holes only what is kept is picked."""
    wide = losses.float() if losses.element_size() < 4 else losses
    totals = []
    for row, mask in zip(wide.split(lengths(batch)), batch.local_masks, strict=True):
        count = int(mask.sum())
        prefix = bool(mask[:count].all())
        totals.append(row[:count].sum() if prefix else row[mask.bool()].sum())
    loss = torch.stack(totals).sum()
    return loss, {"loss": loss.detach()}


def penalty_up_to_the_last_token(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Beside the losses adds the weighted KL, each response up to its last kept token."""
    trailing = _trailing(batch)
    if any(trailing):
        penalty = torch.stack(
            [row[: len(row) - n].sum() for row, n in zip(rows(kl, batch), trailing, strict=True)]
        ).sum()
    else:
        penalty = kept(kl, batch).sum()
    return (kept(losses, batch).sum() + penalty) / max(batch.num_rollouts, 1)
