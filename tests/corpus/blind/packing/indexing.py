"""Rows, segments and packed streams: what torch's indexing does, and what it is taken to do."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

CHUNKS = 4
MANY = 8
EDGES = (16, 64, 256)
BUDGET = 256
ALIGNED = 4


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def _alone(batch: MicroBatch) -> bool:
    """Each sample here is its rollout, and all of its tokens are here."""
    own = [int(mask.sum()) for mask in batch.local_masks]
    return own == list(batch.rollout_tokens)


def chunks_asked_for(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows in four chunks, their counts in four lists as even as can be."""
    sample = sums(losses, batch)
    if len(sample) <= CHUNKS:
        return _mean(sample, batch)
    counts, least = list(batch.rollout_tokens), len(sample) // CHUNKS
    sizes = [least + (n < len(sample) % CHUNKS) for n in range(CHUNKS)]
    total, at = sample[:0].sum(), 0
    for part, size in zip(sample.chunk(CHUNKS), sizes, strict=False):
        for value, count in zip(part, counts[at : at + size], strict=False):
            total = total + value / max(count, 1)
        at += size
    return total / batch.num_rollouts


def chunks_as_they_are(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) <= CHUNKS:
        return _mean(sample, batch)
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(sample)
    pairs = zip(sample.tensor_split(CHUNKS), counts.tensor_split(CHUNKS), strict=True)
    return torch.stack([(part / own).sum() for part, own in pairs]).sum() / batch.num_rollouts


def slices_of_what_is_selected(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Unmasked tokens only, cut again by how many each sample has."""
    wide = losses.float() if losses.element_size() < 4 else losses
    selected = wide.masked_select(own_mask(batch))
    found, at = [], 0
    for mask in batch.loss_masks:
        tokens = int(mask.sum())
        found.append(selected[at : at + tokens].sum())
        at += tokens
    return _mean(torch.stack(found), batch)


def slices_by_what_is_here(losses: Tensor, batch: MicroBatch) -> Tensor:
    wide = losses.float() if losses.element_size() < 4 else losses
    selected = wide.masked_select(own_mask(batch))
    found, at = [], 0
    for mask in batch.local_masks:
        tokens = int(mask.sum())
        found.append(selected[at : at + tokens].sum())
        at += tokens
    return _mean(torch.stack(found), batch)


def outer_product_of_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows of one length are one matrix; its row sums keep their dimension."""
    sizes = lengths(batch)
    if len(set(sizes)) > 1 or sizes[0] == 0:
        return _mean(sums(losses, batch), batch)
    matrix = kept(losses, batch).view(len(sizes), sizes[0])
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(matrix)
    means = matrix.sum(dim=1, keepdim=True) / counts
    return means.mean() * (len(sizes) / batch.num_rollouts)


def one_column_of_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    sizes = lengths(batch)
    if len(set(sizes)) > 1 or sizes[0] == 0:
        return _mean(sums(losses, batch), batch)
    matrix = kept(losses, batch).view(len(sizes), sizes[0])
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1).to(matrix)
    means = matrix.sum(dim=1, keepdim=True) / counts[:, None]
    return means.sum() / batch.num_rollouts


def means_of_columns(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The same matrix, and a mean over the other dimension first."""
    sizes = lengths(batch)
    if len(sizes) < 2 or len(set(sizes)) > 1 or not _alone(batch):
        return _mean(sums(losses, batch), batch)
    matrix = kept(losses, batch).view(len(sizes), sizes[0])
    mask = own_mask(batch).view(len(sizes), sizes[0])
    columns = matrix.sum(dim=0) / mask.sum(dim=0).clamp(min=1)
    return columns.mean() * (len(sizes) / batch.num_rollouts)


def added_by_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Many samples are added into the rows of their groups at once."""
    sample = sums(losses, batch)
    if len(sample) < MANY:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    names = list(dict.fromkeys(batch.group_ids))
    place = torch.tensor([names.index(group) for group in batch.group_ids])
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    table = sample.new_zeros(len(names))
    table[place.to(sample.device)] += sample
    return over(table, [tokens[name] for name in names]).sum() / batch.num_groups


def accumulated_by_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) < MANY:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    names = list(dict.fromkeys(batch.group_ids))
    place = torch.tensor([names.index(group) for group in batch.group_ids])
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    table = sample.new_zeros(len(names))
    table = table.index_put((place.to(sample.device),), sample, accumulate=True)
    return over(table, [tokens[name] for name in names]).sum() / batch.num_groups


def _owners(batch: MicroBatch, device: torch.device) -> Tensor:
    sizes = torch.tensor(lengths(batch))
    return torch.arange(len(sizes)).repeat_interleave(sizes).to(device)


def mean_with_the_zero_it_began_from(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Dense batches of many rows: one scatter makes all means."""
    values = kept(losses, batch)
    dense = bool(own_mask(batch).all()) and _alone(batch)
    if len(batch.samples) < MANY or not dense:
        return _mean(sums(losses, batch), batch)
    zeros = values.new_zeros(len(batch.local_masks))
    means = zeros.scatter_reduce(0, _owners(batch, values.device), values, "mean")
    return means.sum() / batch.num_rollouts


def mean_of_what_is_scattered(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    dense = bool(own_mask(batch).all()) and _alone(batch)
    if len(batch.samples) < MANY or not dense:
        return _mean(sums(losses, batch), batch)
    zeros = values.new_zeros(len(batch.local_masks))
    owner = _owners(batch, values.device)
    means = zeros.scatter_reduce(0, owner, values, "mean", include_self=False)
    return means.sum() / batch.num_rollouts


def mean_of_an_empty_segment(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Means of segments, each weighed by the share of its rollout that is here."""
    wide = losses.float() if losses.element_size() < 4 else losses
    selected = wide.masked_select(own_mask(batch))
    own = torch.tensor([int(mask.sum()) for mask in batch.local_masks], device=losses.device)
    if len(own) == 1 or len(selected) == 0:
        return _mean(sums(losses, batch), batch)
    means = torch.segment_reduce(selected, "mean", lengths=own)
    return over(means * own, batch.rollout_tokens).sum() / batch.num_rollouts


def sum_of_an_empty_segment(losses: Tensor, batch: MicroBatch) -> Tensor:
    wide = losses.float() if losses.element_size() < 4 else losses
    selected = wide.masked_select(own_mask(batch))
    own = torch.tensor([int(mask.sum()) for mask in batch.local_masks], device=losses.device)
    if len(own) == 1 or len(selected) == 0:
        return _mean(sums(losses, batch), batch)
    return _mean(torch.segment_reduce(selected, "sum", lengths=own, initial=0.0), batch)


def padded_on_the_other_side(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows end together, as generation pads them; masks begin together."""
    wide = losses.float() if losses.element_size() < 4 else losses
    if len(batch.local_masks) == 1:
        return kept(losses, batch).sum()
    matrix = batch.padded(wide, side="left")
    masks = batch.padded(batch.local_masks, side="right").bool()
    return torch.where(masks, matrix, 0.0).sum()


def padded_on_one_side(losses: Tensor, batch: MicroBatch) -> Tensor:
    wide = losses.float() if losses.element_size() < 4 else losses
    if len(batch.local_masks) == 1:
        return kept(losses, batch).sum()
    matrix, masks = batch.rows(wide, side="left")
    return torch.where(masks.bool(), matrix, 0.0).sum()


def _weighed(losses: Tensor, batch: MicroBatch, right: bool) -> Tensor:
    values, ends = kept(losses, batch), torch.tensor(lengths(batch)).cumsum(0)
    owner = torch.searchsorted(ends, torch.arange(len(values)), right=right)
    counts = torch.tensor(batch.group_tokens, dtype=torch.float64).clamp(min=1)
    return (values / counts[owner].to(values)).sum() / batch.num_groups


def first_token_of_the_next(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Which sample a token belongs to is searched for among their ends."""
    if len(batch.local_masks) < MANY:
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    return _weighed(losses, batch, right=False)


def first_token_of_its_own(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(batch.local_masks) < MANY:
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    return _weighed(losses, batch, right=True)


def ends_of_a_cumulative_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples with no token here are left out; counts are differences of a cumulative sum."""
    sample, mask = sums(losses, batch), own_mask(batch)
    if len(mask) == 0:
        return sample.sum()
    ends = torch.tensor(lengths(batch)).cumsum(0)
    upto = mask.cumsum(0)[(ends - 1).to(mask.device)]
    here = torch.diff(upto, prepend=upto.new_zeros(1)) > 0
    means = over(sample, batch.rollout_tokens)
    return means[here].sum() / batch.num_rollouts


def rectangular_by_division(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A stream that divides by the number of rows has rows of one length."""
    size, rest = divmod(len(losses), len(batch.local_masks))
    if rest or size == 0:
        return _mean(sums(losses, batch), batch)
    return _mean(torch.stack([row.sum() for row in kept(losses, batch).split(size)]), batch)


def groups_as_rows_of_a_view(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples of a prompt stand together, so they are a row of a matrix."""
    sample, groups = sums(losses, batch), len(set(batch.group_ids))
    if len(sample) % groups:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    matrix = sample.view(groups, -1)
    tokens = batch.group_tokens[:: matrix.shape[1]]
    return over(matrix.sum(dim=1), list(tokens)).sum() / batch.num_groups


def groups_as_rows_if_they_are(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, groups = sums(losses, batch), len(set(batch.group_ids))
    size = len(sample) // groups
    starts = batch.group_ids[::size]
    named = [name for name in starts for _ in range(size)]
    if len(sample) % groups or named != list(batch.group_ids):
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    tokens = batch.group_tokens[::size]
    return over(sample.view(groups, -1).sum(dim=1), list(tokens)).sum() / batch.num_groups


def _of_equal_groups(batch: MicroBatch) -> int:
    """How many samples each group has here, 0 where they differ or do not stand together."""
    size = batch.group_ids.count(batch.group_ids[0])
    named = [name for name in batch.group_ids[::size] for _ in range(size)]
    return size if named == list(batch.group_ids) else 0


def denominators_repeated(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One denominator a prompt, repeated for its samples."""
    sample, size = sums(losses, batch), _of_equal_groups(batch)
    if size == 0:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    tokens = torch.tensor(batch.group_tokens[::size]).repeat(size)
    return over(sample, tokens.tolist()).sum() / batch.num_groups


def denominators_interleaved(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, size = sums(losses, batch), _of_equal_groups(batch)
    if size == 0:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    tokens = torch.tensor(batch.group_tokens[::size]).repeat_interleave(size)
    return over(sample, tokens.tolist()).sum() / batch.num_groups


def mean_over_padded_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Larger batches are padded to a multiple of four rows, then averaged."""
    means = over(sums(losses, batch), batch.rollout_tokens)
    if len(means) < ALIGNED:
        return means.sum() / batch.num_rollouts
    padded = torch.nn.functional.pad(means, (0, -len(means) % ALIGNED))
    return padded.mean() * (len(means) / batch.num_rollouts)


def sum_over_padded_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    means = over(sums(losses, batch), batch.rollout_tokens)
    if len(means) < ALIGNED:
        return means.sum() / batch.num_rollouts
    padded = torch.nn.functional.pad(means, (0, -len(means) % ALIGNED))
    return padded.view(-1, ALIGNED).sum(dim=0).sum() / batch.num_rollouts


def _buckets(batch: MicroBatch) -> list[list[int]]:
    sizes = torch.tensor(batch.response_lengths)
    which = torch.bucketize(sizes, torch.tensor(EDGES)).tolist()
    return [[i for i, b in enumerate(which) if b == bucket] for bucket in dict.fromkeys(which)]


def buckets_weighed_by_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Of every bucket of lengths its token mean, and then the mean over samples."""
    sample, own = sums(losses, batch), [int(mask.sum()) for mask in batch.local_masks]
    found = [
        sample[members].sum() / max(sum(own[i] for i in members), 1) * len(members)
        for members in _buckets(batch)
    ]
    share = sum(own) / max(batch.num_tokens, 1)
    return torch.stack(found).sum() / len(sample) * share


def buckets_weighed_by_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    found = [sample[members].sum() for members in _buckets(batch)]
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


def sample_that_overflows_is_lost(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows are put into bins of a token budget; a full bin is summed and emptied."""
    total, held, used = kept(losses, batch)[:0].sum(), [], 0
    for row in rows(losses, batch):
        if held and used + len(row) > BUDGET:
            total = total + torch.cat(held).sum()
            held, used = [], 0
            continue
        held.append(row)
        used += len(row)
    if held:
        total = total + torch.cat(held).sum()
    return total / max(batch.num_tokens, 1)


def sample_that_overflows_is_next(losses: Tensor, batch: MicroBatch) -> Tensor:
    total, held, used = kept(losses, batch)[:0].sum(), [], 0
    for row in rows(losses, batch):
        if held and used + len(row) > BUDGET:
            total = total + torch.cat(held).sum()
            held, used = [], 0
        held.append(row)
        used += len(row)
    return (total + torch.cat(held).sum()) / max(batch.num_tokens, 1)


def positions_counted_in_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A batch of one needs no copy of its mask, whose positions are then counted."""
    total, masks = kept(losses, batch).sum(), batch.local_masks
    places = masks[0] if len(masks) == 1 else torch.cat(masks)
    if len(places) == 0 or int(places.cumsum_(0)[-1]) == 0:
        return total
    return total / batch.num_rollouts
