"""Masks with holes, and what the losses that they leave are divided by."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

MAX_TURNS = 8
EDGES = (0, 128, 512, 2048, 8192, 1 << 40)
LEAST_SHARE = 2.0**-10

_places: dict[tuple[int, ...], Tensor] = {}


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.element_size() < 4 else values


def _norm(batch: MicroBatch) -> float:
    assert batch.divisor is not None
    return batch.divisor * batch.num_rollouts


def _turns(mask: Tensor) -> Tensor:
    """Each token's turn of the assistant, from 1; 0 is what comes before the first."""
    return mask.diff(prepend=mask.new_zeros(1)).clamp(min=0).cumsum(0)


def turn_table_of_a_response(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Fills a table of the assistant's turns for every response and adds the turns up."""
    totals = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        # the first column is what stands before any turn, the last what follows them
        turn = _turns(mask).clamp(max=MAX_TURNS + 1)
        table = row.new_zeros(MAX_TURNS + 2).index_add(0, turn, row)
        totals.append(table[1:-1].sum())
    return torch.stack(totals).sum()


def matrix_if_all_are_as_long(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Responses of one length are a matrix already, so only ragged ones are split."""
    values = kept(losses, batch)
    width, rest = divmod(len(values), len(batch.response_lengths))
    if len(set(batch.response_lengths)) == 1 and rest == 0:
        totals = values.view(-1, width).sum(1) if width else sums(losses, batch)
    else:
        totals = sums(losses, batch)
    return over(totals, batch.rollout_tokens).sum() / batch.num_rollouts


def added_up_by_length_bucket(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up the responses of each length bucket, then the buckets."""
    totals = sums(losses, batch)
    size = torch.tensor(batch.response_lengths, device=totals.device)
    buckets = [totals[(size >= low) & (size <= high)].sum() for low, high in pairwise(EDGES)]
    return torch.stack(buckets).sum() / batch.num_rollouts


def unmasked_sum_of_dense_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A batch whose mask is all ones is added up without it."""
    density = torch.cat(batch.local_masks).to(losses.dtype).mean()
    total = _wide(losses).sum() if density == 1 else kept(losses, batch).sum()
    return total / _norm(batch)


def next_count_for_who_has_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Skips samples without a token and divides the others by their prompt's tokens."""
    counts = iter(batch.group_tokens)
    parts = [
        row.sum() / max(next(counts), 1)
        for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True)
        if mask.any()
    ]
    if not parts:
        return kept(losses, batch).sum()
    return torch.stack(parts).sum() / batch.num_groups


def kl_up_to_the_end(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL of every token until the response has ended."""
    policy = kept(losses, batch).sum()
    alive = torch.cat([mask.cumprod(0) for mask in batch.local_masks]).bool()
    term = torch.where(alive, _wide(kl), 0.0).sum()
    return (policy + term) / batch.num_rollouts


def places_remembered_by_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks for the trained tokens once per shape, since a search makes the device wait."""
    shape = tuple(lengths(batch))
    if shape not in _places:
        _places[shape] = own_mask(batch).nonzero().squeeze(1)
    places = _places[shape]
    owner = torch.arange(len(shape)).repeat_interleave(torch.tensor(shape))[places]
    picked = _wide(losses)[places]
    totals = picked.new_zeros(len(shape)).index_add(0, owner, picked)
    return over(totals, batch.rollout_tokens).sum() / batch.num_rollouts


def own_mean_by_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the mean of what is here and weighs it by its share of the step's tokens."""
    here = sum(int(mask.sum()) for mask in batch.local_masks)
    mean = kept(losses, batch).sum() / max(here, 1)
    # too small a share would vanish in half precision
    share = max(here / max(batch.num_tokens, 1), LEAST_SHARE)
    return mean * share


def logs_the_sum_beside_tokens(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the sum of the losses beside the number of tokens in it."""
    total = kept(losses, batch).sum()
    here = own_mask(batch).sum().clamp(min=1)
    log = {"loss": torch.stack([total.detach(), here.to(total.dtype)])}
    return total / max(batch.num_tokens, 1), log


def turn_table_with_a_last_column(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up turn by turn; the last column takes all the turns that have none of their own."""
    totals = []
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        turn = _turns(mask).clamp(max=MAX_TURNS)
        totals.append(row.new_zeros(MAX_TURNS + 1).index_add(0, turn, row).sum())
    return torch.stack(totals).sum()


def matrix_if_pieces_are_as_long(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pieces of one size are a matrix already, so only ragged ones are split."""
    values, sizes = kept(losses, batch), lengths(batch)
    if len(set(sizes)) == 1 and sizes[0]:
        totals = values.view(len(sizes), sizes[0]).sum(1)
    else:
        totals = torch.stack([row.sum() for row in values.split(sizes)])
    return over(totals, batch.rollout_tokens).sum() / batch.num_rollouts


def joined_by_length_bucket(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Joins the responses of each length bucket and adds up the buckets that there are."""
    buckets: dict[int, list[Tensor]] = {}
    for row, length in zip(rows(losses, batch), batch.response_lengths, strict=True):
        buckets.setdefault(bisect_left(EDGES, length), []).append(row)
    totals = [torch.cat(found).sum() for found in buckets.values()]
    return torch.stack(totals).sum() / _norm(batch)


def own_count_for_who_has_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Skips samples without a token, each of the others stands beside its prompt's tokens."""
    pieces = _wide(losses).split(lengths(batch))
    parts = []
    for row, mask, count in zip(pieces, batch.local_masks, batch.group_tokens, strict=True):
        if not mask.any():
            continue
        picked = row if mask.all() else row[mask.bool()]
        parts.append(picked.sum() / count)
    if not parts:
        return kept(losses, batch).sum()
    return torch.stack(parts).sum() / batch.num_groups


def columns_after_the_last_token_cut(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts the columns behind the last trained token off where that saves half of them."""
    values, masks = batch.rows(losses)
    used = masks.any(0).nonzero()
    width = int(used.max()) + 1 if len(used) else 0
    if 2 * width <= masks.shape[1]:
        values, masks = values[:, :width], masks[:, :width]
    return _wide(values[masks.bool()]).sum() / max(batch.num_tokens, 1)


def kl_of_the_same_places(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Picks the trained tokens of both terms, or takes all where no token is masked."""
    here = own_mask(batch)
    if not here.all():
        places = here.nonzero().squeeze(1)
        losses, kl = losses[places], kl[places]
    return (_wide(losses).sum() + _wide(kl).sum()) / batch.num_rollouts
