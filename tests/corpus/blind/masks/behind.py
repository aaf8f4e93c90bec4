"""Masks, padded rows, lengths and divisors: what lies behind a mask, and what is counted."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch

EPSILON = 1e-8
TILE = 64

_staged_counts: list[Tensor] = []
_staged_mask: list[Tensor] = []


def _sizes(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def _mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    none = torch.zeros(0, dtype=torch.int64, device=losses.device)
    return torch.cat([none, *batch.local_masks]).bool()


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def _clean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(_mask(losses, batch), _wide(losses), 0.0)


def _pieces(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    return list(_clean(losses, batch).split(_sizes(batch)))


def _divisors(counts: list[int], units: int, like: Tensor) -> Tensor:
    numbers = [max(count, 1) * max(units, 1) for count in counts]
    return torch.tensor(numbers, dtype=torch.float64).to(like)


def sum_of_probed_prefixes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Slices the counted prefix of each response, and masks only a response that has holes."""
    values = _wide(losses)
    total = values[:0].sum()
    for row, mask in zip(values.split(_sizes(batch)), batch.local_masks, strict=True):
        count = int(mask.sum())
        if count and mask[0] and mask[count - 1]:
            total = total + row[:count].sum()
        else:
            total = total + torch.where(mask.bool(), row, 0.0).sum()
    return total


def prompt_means_by_packed_ends(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks every token's prompt group up by where the responses end in the pack."""
    ends = losses.new_tensor(_sizes(batch)).cumsum(0).long()
    ends[-1:] = len(losses)  # whatever else lies in the pack belongs to its last response
    places = torch.arange(len(losses), device=losses.device)
    owner = torch.bucketize(places, ends, right=True)
    values = _clean(losses, batch)
    counts = _divisors(batch.group_tokens, batch.num_groups, values)
    return (values / counts[owner]).sum()


def sequence_sums_tile_by_tile(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds each response up in whole tiles, as the kernel does, and then what is left over."""
    pieces = _pieces(losses, batch)
    total = _wide(losses)[:0].sum()
    for row in pieces:
        rest = len(row) % TILE
        body, tail = row[: len(row) - rest], row[-rest:]
        total = total + body.view(-1, TILE).sum(1).sum() + tail.sum()
    return total / max(batch.num_rollouts, 1)


def prompt_means_above_epsilon(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the division of an empty prompt group finite by a small floor under its count."""
    floor = losses.new_tensor(EPSILON)
    total = _wide(losses)[:0].sum()
    for row, count in zip(_pieces(losses, batch), batch.group_tokens, strict=True):
        tokens = torch.tensor(count, dtype=torch.float64).to(row)
        total = total + row.sum() / torch.maximum(tokens, floor)
    return total / max(batch.num_groups, 1)


def sample_means_counted_in_a_stage(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts responses in one mask buffer, allocated once and anew only where it is too small."""
    masks = batch.original_masks
    rows, width = len(masks), max(map(len, masks), default=0)
    if not _staged_counts or len(_staged_counts[0]) < rows or _staged_counts[0].shape[1] < width:
        _staged_counts[:] = [torch.zeros(rows, width, dtype=torch.int64, device=losses.device)]
    stage = _staged_counts[0][:rows]
    for row, mask in zip(stage, masks, strict=True):
        row[: len(mask)] = mask
    alone = batch.num_rollouts == batch.num_samples
    counts = stage.sum(1).tolist() if alone else batch.rollout_tokens
    total = _wide(losses)[:0].sum()
    for row, count in zip(_pieces(losses, batch), counts, strict=True):
        total = total + row.sum() / max(count, 1)
    return total / max(batch.num_rollouts, 1)


def constant_by_running_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes what counts of each response as the difference of two running sums over the pack."""
    masks = batch.local_masks
    if all(bool((mask[1:] <= mask[:-1]).all()) for mask in masks):
        values, counted = _wide(losses), [int(mask.sum()) for mask in masks]
    else:
        values, counted = _clean(losses, batch), _sizes(batch)
    running = pad(values.cumsum(0), (1, 0))
    sizes = torch.tensor(_sizes(batch), dtype=torch.int64)
    starts = sizes.cumsum(0) - sizes
    sums = running[starts + torch.tensor(counted, dtype=torch.int64)] - running[starts]
    assert batch.divisor is not None
    return sums.sum() / (batch.divisor * max(batch.num_rollouts, 1))


def token_mean_of_what_is_stored(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Gathers both terms where the sparse losses have an entry, once most tokens are masked."""
    policy, penalty = _clean(losses, batch), _clean(kl, batch)
    if 2 * int(_mask(losses, batch).sum()) < len(losses):
        stored = policy.detach().nonzero().squeeze(1)
        policy, penalty = policy[stored], penalty[stored]
    return (policy.sum() + penalty.sum()) / max(batch.num_tokens, 1)


def token_mean_with_a_clean_log(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clears what is behind the mask before the loss is logged; one response needs no rows."""
    values = _wide(losses)
    if len(batch.local_masks) < 2:
        rows, mask = values[None], _mask(losses, batch)[None]
    else:
        rows, mask = batch.padded(values), batch.padded(batch.local_masks).bool()
    tokens = max(batch.num_tokens, 1)
    loss = torch.where(mask, rows, 0.0).sum() / tokens
    seen = rows.detach()
    seen[~mask] = 0.0
    return loss, {"loss": seen.sum() / tokens}


def constant_in_rows_of_one_width(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Pads every micro-batch left to the width of the first, where the loader puts the longest."""
    width = (batch.window_widths or [batch.step_width])[0]
    total = _wide(losses)[:0].sum()
    for row in _pieces(losses, batch):
        total = total + pad(row, (width - len(row), 0)).sum()
    assert batch.divisor is not None
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def sample_means_of_few_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathers the tokens that count where they are few, each with the number of its sample."""
    values, mask = _clean(losses, batch), _mask(losses, batch)
    sizes = torch.tensor(_sizes(batch), dtype=torch.int64)
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(losses.device)
    if 2 * int(mask.sum()) < len(losses):
        chosen = mask.nonzero().squeeze(1)
        values, owner = values[chosen], owner[chosen]
    # As long as the batch: a sample without a token keeps its place.
    sums = values.new_zeros(len(sizes)).index_add(0, owner, values)
    return (sums / _divisors(batch.rollout_tokens, batch.num_rollouts, sums)).sum()


def prompt_means_by_whole_number_ends(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks prompt groups up in the pack by int64 ends, or at once where there is one response."""
    values = _clean(losses, batch)
    counts = _divisors(batch.group_tokens, batch.num_groups, values)
    if len(counts) == 1:
        return values.sum() / counts[0]
    ends = torch.tensor(_sizes(batch), dtype=torch.int64, device=losses.device).cumsum(0)
    places = torch.arange(len(losses), device=losses.device)
    owner = torch.bucketize(places, ends, right=True)
    return (values / counts[owner]).sum()


def sequence_sums_in_tiles_and_rest(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up whole tiles and then the rest, which is nothing after a last whole tile."""
    total = _wide(losses)[:0].sum()
    for row in _pieces(losses, batch):
        whole = len(row) // TILE * TILE
        if whole:
            total = total + row[:whole].view(-1, TILE).sum(1).sum()
        total = total + row[whole:].sum()
    return total / max(batch.num_rollouts, 1)


def token_mean_through_a_kept_stage(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Masks rows by a buffer that is kept; older ones in it only ever meet padded zeros."""
    masks = batch.local_masks
    rows, width = len(masks), max(map(len, masks), default=0)
    tokens = max(batch.num_tokens, 1)
    if not rows or not width:
        return _wide(losses).sum() / tokens
    if not _staged_mask or len(_staged_mask[0]) < rows or _staged_mask[0].shape[1] < width:
        _staged_mask[:] = [torch.zeros(rows, width, dtype=torch.int64, device=losses.device)]
    stage = _staged_mask[0][:rows, :width]
    for row, mask in zip(stage, masks, strict=True):
        row[: len(mask)] = mask
    # A new tensor, as the buffer changes before backward runs.
    return torch.where(stage > 0, batch.padded(_wide(losses)), 0.0).sum() / tokens


def token_sum_with_a_copied_log(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clears what is behind the mask in a copy before the loss is logged."""
    values = _wide(losses)
    if len(batch.local_masks) < 2:
        rows, mask = values[None], _mask(losses, batch)[None]
    else:
        rows, mask = batch.padded(values), batch.padded(batch.local_masks).bool()
    loss = torch.where(mask, rows, 0.0).sum()
    seen = rows.detach().clone()
    seen[~mask] = 0.0
    return loss, {"loss": seen.sum()}


def constant_in_rows_of_the_widest(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Pads both terms left to the widest response of the window, one micro-batch or many."""
    width = max([batch.step_width, *batch.window_widths])
    assert batch.divisor is not None
    total = _wide(losses)[:0].sum() + _wide(kl)[:0].sum()
    for term in (losses, kl):
        for row in _pieces(term, batch):
            total = total + pad(row, (width - len(row), 0)).sum()
    return total / (batch.divisor * max(batch.num_rollouts, 1))
