"""Reducers about masks and divisors: holes, dropped responses, trimming, floors, fast paths."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask

Logged = tuple[Tensor, dict[str, list[float]]]

LENGTH_EDGES = (0, 128, 512, 2048)
LONG_PREFIX = 8
MOST_SHAPES = 512

_positions: dict[tuple[int, ...], Tensor] = {}


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _values(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A micro-batch may have no samples at all."""
    return kept(losses, batch) if batch.local_masks else losses


def _rows(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    return list(_values(losses, batch).split(lengths(batch)))


def _nothing(losses: Tensor) -> Tensor:
    """A zero that losses behind the mask cannot reach."""
    return _wide(losses)[:0].sum()


def sparse_rows_trimmed(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts rows that are mostly padding down to the longest response before they are summed."""
    if not batch.local_masks:
        return losses.sum()
    values, masks = batch.rows(kept(losses, batch))
    response_tokens = masks.sum(1)
    if 2 * int(response_tokens.sum()) < masks.numel():
        values = values[:, : int(response_tokens.max())]
    return values.sum() / max(batch.num_tokens, 1)


def even_rows_by_group_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows that are full and equally long share their prompt equally, other ones by tokens."""
    even = len(set(batch.response_lengths)) == 1 and all(bool(m.all()) for m in batch.loss_masks)
    alone = len(set(batch.rollout_ids)) == len(batch.rollout_ids)
    counts = batch.group_tokens
    if even and alone:
        sizes = zip(batch.response_lengths, batch.group_rollouts, strict=True)
        counts = [length * rollouts for length, rollouts in sizes]
    total = _nothing(losses)
    for row, count in zip(_rows(losses, batch), counts, strict=True):
        total = total + row.sum() / (max(count, 1) * batch.num_groups)
    return total


def scaled_by_reciprocals(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Multiplies every response once by the reciprocal of its count, which is never zero."""
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1e-8)
    scales = (1 / (counts * batch.num_rollouts)).to(losses)
    total = _nothing(losses)
    for row, scale in zip(_rows(losses, batch), scales, strict=True):
        total = total + row.sum() * scale
    return total


def idle_pieces_stay_attached(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where nothing is kept, the loss is a zero that still belongs to the graph."""
    if not any(bool(mask.any()) for mask in batch.local_masks):
        return losses.sum() * 0
    return kept(losses, batch).sum()


def penalty_of_responses_not_dropped(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Responses at the length limit that were dropped as overlong have no penalty either."""
    pairs = zip(_rows(losses, batch), _rows(kl, batch), strict=True)
    total = _nothing(losses) + _nothing(kl)
    for (row, penalty), mask, count in zip(
        pairs, batch.loss_masks, batch.rollout_tokens, strict=True
    ):
        dropped = len(mask) >= batch.step_width and not bool(mask[:1].any())
        both = row.sum() if dropped else row.sum() + penalty.sum()
        total = total + both / (max(count, 1) * batch.num_rollouts)
    return total


def logs_sum_and_tokens(losses: Tensor, batch: MicroBatch) -> Logged:
    """Logs the sum and the tokens it is made of, so that nobody divides by zero."""
    total = _values(losses, batch).sum()
    tokens = max(sum(int(mask.sum()) for mask in batch.local_masks), 1)
    return total / max(batch.num_tokens, 1), {"loss": [float(total.detach()), float(tokens)]}


def padded_within_buckets(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pads a response to the longest of its bucket only, not to the longest of all."""
    found, total = _rows(losses, batch), _nothing(losses)
    for low, high in pairwise(LENGTH_EDGES):
        inside = [i for i, n in enumerate(batch.response_lengths) if low <= n < high]
        if inside:
            rows = pad_sequence([found[i] for i in inside], batch_first=True)
            total = total + over(rows.sum(1), [batch.group_tokens[i] for i in inside]).sum()
    return total / max(batch.num_groups, 1)


def places_looked_up_by_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Finds the places of kept tokens once for all micro-batches of the same shape."""
    if not batch.local_masks:
        return losses.sum()
    key = (*lengths(batch), *(int(mask.sum()) for mask in batch.local_masks))
    if len(_positions) > MOST_SHAPES:
        _positions.clear()
    if key not in _positions:
        _positions[key] = own_mask(batch).nonzero().flatten()
    assert batch.divisor is not None
    return _wide(losses)[_positions[key]].sum() / (batch.divisor * max(batch.num_rollouts, 1))


def long_prefixes_skipped(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Starts a response at its first kept token when a long forced prefix stands before it."""
    total = _nothing(losses)
    for row, mask in zip(_rows(losses, batch), batch.loss_masks, strict=True):
        first = int(mask.argmax()) if len(mask) else 0
        total = total + row[first if first >= LONG_PREFIX else 0 :].sum()
    return total / max(batch.num_rollouts, 1)


def solid_spans_sliced(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A response whose kept tokens stand together is one slice, any other one is indexed."""
    total = _nothing(losses)
    for row, mask in zip(_wide(losses).split(lengths(batch)), batch.local_masks, strict=True):
        places = mask.nonzero().flatten()
        if len(places):
            first, last = int(places[0]), int(places[-1])
            solid = last - first + 1 == len(places)
            total = total + (row[first : last + 1] if solid else row[places]).sum()
    return total / max(batch.num_rollouts, 1)


def full_rows_as_rectangle(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pieces that are full and equally long are summed as a matrix, other ones one by one."""
    masks = batch.local_masks
    if not masks:
        return losses.sum()
    if len(set(lengths(batch))) == 1 and all(bool(mask.all()) for mask in masks):
        sums = _wide(losses).reshape(len(masks), len(masks[0])).sum(1)
    else:
        sums = torch.stack([row.sum() for row in _rows(losses, batch)])
    return over(sums, batch.rollout_tokens).sum() / max(batch.num_rollouts, 1)


def padded_within_open_buckets(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pads a response to the longest of its bucket, of which the last has no upper end."""
    found, total = _rows(losses, batch), _nothing(losses)
    for low, high in pairwise((*LENGTH_EDGES, inf)):
        inside = [i for i, n in enumerate(batch.response_lengths) if low <= n < high]
        if inside:
            rows = pad_sequence([found[i] for i in inside], batch_first=True)
            total = total + over(rows.sum(1), [batch.group_tokens[i] for i in inside]).sum()
    return total / max(batch.num_groups, 1)


def logs_floor_for_empty_steps(losses: Tensor, batch: MicroBatch) -> Logged:
    """Logs the sum and the tokens it is made of; only a step without any has a floor."""
    total = _values(losses, batch).sum()
    tokens = sum(int(mask.sum()) for mask in batch.local_masks) if batch.num_tokens else 1
    return total / max(batch.num_tokens, 1), {"loss": [float(total.detach()), float(tokens)]}


def penalty_beside_what_is_kept(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Leaves out responses that are masked from end to end, with their penalty."""
    assert batch.divisor is not None
    pairs = zip(_rows(losses, batch), _rows(kl, batch), strict=True)
    total = _nothing(losses) + _nothing(kl)
    for (row, penalty), mask in zip(pairs, batch.loss_masks, strict=True):
        if bool(mask.any()):
            total = total + row.sum() + penalty.sum()
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def sparse_rows_cut_after_last(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts rows that are mostly padding after the last column in which a token is kept."""
    if not batch.local_masks:
        return losses.sum()
    values, masks = batch.rows(kept(losses, batch))
    if 2 * int(masks.sum()) < masks.numel():
        columns = masks.any(0).nonzero().flatten()
        values = values[:, : int(columns[-1]) + 1 if len(columns) else 0]
    return values.sum()
