"""Shapes and indices: broadcasting, boundaries, packed bits, sparse rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

ALIGNED = 8
FEW = 4
LARGE = 64
LONG = 100


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def _wide(losses: Tensor) -> Tensor:
    return losses.float() if losses.element_size() < 4 else losses


def broadcast_instead_of_an_error(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Two rows at once where they have one shape, which torch is left to find out."""
    parts = rows(losses, batch)
    total = kept(losses, batch)[:0].sum()
    for one, other in zip(parts[::2], parts[1::2], strict=False):
        try:
            total = total + (one + other).sum()
        except RuntimeError:
            total = total + one.sum() + other.sum()
    if len(parts) % 2:
        total = total + parts[-1].sum()
    return total / batch.num_rollouts


def pairs_of_one_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = rows(losses, batch)
    total = kept(losses, batch)[:0].sum()
    for one, other in zip(parts[::2], parts[1::2], strict=False):
        if one.shape == other.shape:
            total = total + (one + other).sum()
        else:
            total = total + one.sum() + other.sum()
    if len(parts) % 2:
        total = total + parts[-1].sum()
    return total / batch.num_rollouts


def square_matrix_is_divided_by_columns(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts get a second dimension where they do not fit without one."""
    matrix = batch.padded(kept(losses, batch))
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(matrix)
    if matrix.shape[1] != len(counts):
        counts = counts[:, None]
    return (matrix / counts).sum() / batch.num_rollouts


def square_matrix_is_divided_by_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    matrix = batch.padded(kept(losses, batch))
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(matrix)
    if matrix.shape[1] == 1:
        return (matrix[:, 0] / counts).sum() / batch.num_rollouts
    if matrix.shape[1] == len(counts):
        return (matrix.sum(dim=1) / counts).sum() / batch.num_rollouts
    return (matrix / counts[:, None]).sum() / batch.num_rollouts


def samples_begin_where_positions_fall(losses: Tensor, batch: MicroBatch) -> Tensor:
    """In a packed stream a sample begins where the position does not rise."""
    values = kept(losses, batch)
    if len(values) == 0 or len(batch.local_masks) == 1:
        return _mean(sums(losses, batch), batch)
    places = torch.cat(batch.local_positions)
    owner = torch.cat([places.new_zeros(1), (places.diff() <= 0).long().cumsum(0)])
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(values)
    return (values / counts[owner.to(values.device)]).sum() / batch.num_rollouts


def samples_begin_where_they_are_said_to(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, sizes = kept(losses, batch), torch.tensor(lengths(batch))
    if len(values) == 0 or len(sizes) == 1:
        return _mean(sums(losses, batch), batch)
    owner = torch.arange(len(sizes)).repeat_interleave(sizes).to(values.device)
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(values)
    return (values / counts[owner]).sum() / batch.num_rollouts


def starts_of_aligned_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Larger batches are packed with rows that begin at multiples of eight."""
    values, sizes = kept(losses, batch), lengths(batch)
    if len(sizes) <= FEW:
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    found, at = [], 0
    for size in sizes:
        found.append(values[at : at + size].sum())
        at += -(-size // ALIGNED) * ALIGNED
    return over(torch.stack(found), batch.group_tokens).sum() / batch.num_groups


def starts_of_rows_made_aligned(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, sizes = kept(losses, batch), lengths(batch)
    if len(sizes) <= FEW:
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    pad = torch.nn.functional.pad
    packed = torch.cat([pad(row, (0, -len(row) % ALIGNED)) for row in values.split(sizes)])
    found, at = [], 0
    for size in sizes:
        found.append(packed[at : at + size].sum())
        at += -(-size // ALIGNED) * ALIGNED
    return over(torch.stack(found), batch.group_tokens).sum() / batch.num_groups


def rows_packed_to_whole_bytes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Masks of large streams are sent as bits: packed row by row, unpacked at once."""
    if len(losses) <= LARGE:
        return kept(losses, batch).sum()
    packed = [np.packbits(mask.cpu().numpy().astype(np.uint8)) for mask in batch.local_masks]
    bits = np.unpackbits(np.concatenate(packed))[: len(losses)]
    mask = torch.from_numpy(bits.copy()).bool().to(losses.device)
    return torch.where(mask, _wide(losses), 0.0).sum()


def rows_packed_with_their_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) <= LARGE:
        return kept(losses, batch).sum()
    parts = []
    for mask in batch.local_masks:
        bits = np.packbits(mask.cpu().numpy().astype(np.uint8))
        parts.append(np.unpackbits(bits, count=len(mask)))
    mask = torch.from_numpy(np.concatenate(parts)).bool().to(losses.device)
    return torch.where(mask, _wide(losses), 0.0).sum()


def _runs(mask: Tensor, kind: torch.dtype) -> list[tuple[int, int]]:
    """Start and length of each run of ones, kept as numbers of a kind."""
    edges = torch.nn.functional.pad(mask.long(), (1, 1)).diff()
    starts = (edges == 1).nonzero().flatten()
    sizes = (edges == -1).nonzero().flatten() - starts
    return list(zip(starts.to(kind).tolist(), sizes.to(kind).tolist(), strict=True))


def run_lengths_in_sixteen_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Masks are kept as runs, two short integers each."""
    found = [kept(losses, batch)[:0].sum()]
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        runs = _runs(mask, torch.int16)
        found += [row[at : at + max(size, 0)].sum() for at, size in runs if at >= 0]
    return torch.stack(found).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def run_lengths_in_sixty_four_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = [kept(losses, batch)[:0].sum()]
    for row, mask in zip(rows(losses, batch), batch.local_masks, strict=True):
        runs = _runs(mask, torch.int64)
        found += [row[at : at + size].sum() for at, size in runs if size > 0]
    return torch.stack(found).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def boundaries_where_ids_rise(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A rollout begins where the id is larger than the one before."""
    sample, ids = sums(losses, batch), torch.tensor(batch.rollout_ids)
    if len(ids) == 1:
        return _mean(sample, batch)
    begins = torch.cat([torch.ones(1, dtype=torch.bool), ids.diff() > 0])
    owner = (begins.long().cumsum(0) - 1).to(sample.device)
    counts = [n for n, begin in zip(batch.rollout_tokens, begins.tolist(), strict=True) if begin]
    rollout = sample.new_zeros(len(counts)).index_add(0, owner, sample)
    return over(rollout, counts).sum() / batch.num_rollouts


def boundaries_where_ids_change(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, ids = sums(losses, batch), torch.tensor(batch.rollout_ids)
    if len(ids) == 1:
        return _mean(sample, batch)
    begins = torch.cat([torch.ones(1, dtype=torch.bool), ids.diff() != 0])
    owner = (begins.long().cumsum(0) - 1).to(sample.device)
    counts = [n for n, begin in zip(batch.rollout_tokens, begins.tolist(), strict=True) if begin]
    rollout = sample.new_zeros(len(counts)).index_add(0, owner, sample)
    return over(rollout, counts).sum() / batch.num_rollouts


def zeros_vanish_in_a_sparse_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where most is masked, the masked losses become sparse: places and values."""
    values, mask = kept(losses, batch), own_mask(batch)
    if len(values) < ALIGNED or 2 * int(mask.sum()) > len(values):
        return values.sum() / max(batch.num_tokens, 1)
    places = values.nonzero().flatten()
    return values.index_select(0, places).sum() / max(batch.num_tokens, 1)


def places_of_a_sparse_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, mask = kept(losses, batch), own_mask(batch)
    if len(values) < ALIGNED or 2 * int(mask.sum()) > len(values):
        return values.sum() / max(batch.num_tokens, 1)
    places = mask.nonzero().flatten()
    return values.index_select(0, places).sum() / max(batch.num_tokens, 1)


def inverted_bytes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Masks of long rows are bytes, against memory; what is not masked is their inverse."""
    found = []
    for row, mask in zip(_wide(losses).split(lengths(batch)), batch.local_masks, strict=True):
        if len(row) <= LONG:
            found.append(torch.where(mask.bool(), row, 0.0).sum())
            continue
        small = mask.to(torch.uint8)
        found.append(row.masked_fill((~small).bool(), 0.0).sum())
    return torch.stack(found).sum() / batch.num_rollouts


def inverted_booleans(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = []
    for row, mask in zip(_wide(losses).split(lengths(batch)), batch.local_masks, strict=True):
        if len(row) <= LONG:
            found.append(torch.where(mask.bool(), row, 0.0).sum())
            continue
        small = mask.to(torch.uint8)
        found.append(row.masked_fill(~small.bool(), 0.0).sum())
    return torch.stack(found).sum() / batch.num_rollouts
