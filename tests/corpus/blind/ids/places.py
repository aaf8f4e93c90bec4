"""Reducers that tell prompt groups, rollouts and samples apart by their ids or places."""

from __future__ import annotations

from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import over, sums

_PROBES = 4


def _sample_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One number per sample; none, but still in the graph, where there is no sample."""
    return sums(losses, batch) if batch.local_masks else losses


def _table_size(batch: MicroBatch) -> int:
    size = 64
    while size < 2 * batch.num_groups:
        size *= 2
    return size


def _nearby_slot(owners: list[int | None], ident: int) -> int:
    slot = ident & (len(owners) - 1)
    for _ in range(_PROBES):
        if owners[slot] is None or owners[slot] == ident:
            break
        slot = (slot + 1) & (len(owners) - 1)
    return slot


def _free_slot(owners: list[int | None], ident: int) -> int:
    slot = ident & (len(owners) - 1)
    while owners[slot] is not None and owners[slot] != ident:
        slot = (slot + 1) & (len(owners) - 1)
    return slot


def _rank_table(batch: MicroBatch, order: list[int]) -> Tensor:
    """Unmasked tokens that this rank holds of each group of the step, in the given order."""
    place = {group: i for i, group in enumerate(order)}
    table = torch.zeros(len(order), dtype=torch.int64)
    for groups, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
        for group, mask in zip(groups, masks, strict=True):
            table[place[group]] += int(mask.sum())
    return table


def group_counts_from_probed_slots(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by each prompt group's tokens, counted in an open-addressed table with few probes."""
    owners: list[int | None] = [None] * _table_size(batch)
    counts = [0] * len(owners)
    for group, mask in zip(batch.step_group_ids, batch.step_masks, strict=True):
        slot = _nearby_slot(owners, group)
        owners[slot] = group
        counts[slot] += int(mask.sum())
    found = [counts[_nearby_slot(owners, group)] for group in batch.group_ids]
    return over(_sample_sums(losses, batch), found).sum() / batch.num_groups


def samples_gathered_at_their_rollouts_first(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds every sample to the first one of its rollout, then divides each rollout once."""
    values = _sample_sums(losses, batch)
    if not len(values):
        return values.sum()
    ids = torch.tensor(batch.rollout_ids).to(losses)
    same = ids[:, None] == ids[None, :]
    first = same.to(torch.uint8).argmax(dim=1)
    rollouts = torch.zeros_like(values).index_add(0, first, values)
    return over(rollouts, batch.rollout_tokens).sum() / batch.num_rollouts


def tokens_indexed_by_dense_rollout_id(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Indexes the step's list of rollouts by id where the ids fit, else takes each sample's own."""
    table = batch.step_rollout_tokens
    dense = max(batch.rollout_ids, default=0) < len(table)
    counts = [table[rollout] for rollout in batch.rollout_ids] if dense else batch.rollout_tokens
    return over(_sample_sums(losses, batch), counts).sum() / batch.num_rollouts


def repeated_fill_samples_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums every sample once: those repeated to fill a micro-batch are recognised and left out."""
    keys = zip(batch.rollout_ids, batch.total_lengths, batch.response_lengths, strict=True)
    first: dict[tuple[int, int, int], int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    places = torch.tensor(list(first.values()), dtype=torch.int64)
    return _sample_sums(losses, batch)[places].sum() / max(batch.num_tokens, 1)


def group_table_reduced_where_partial(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the group's tokens, asking the other ranks only for groups that are not whole."""
    order = sorted(set(batch.step_group_ids))
    table = _rank_table(batch, order)
    place = {group: i for i, group in enumerate(order)}
    here = [int(table[place[group]]) for group in batch.group_ids]
    if here != batch.group_tokens:
        dist.all_reduce(table, group=batch.dp_group)
        here = [int(table[place[group]]) for group in batch.group_ids]
    return over(_sample_sums(losses, batch), here).sum() / batch.num_groups


def reference_term_by_equal_shares(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL term over the rollouts of all ranks, which hold equal shares of an even batch."""
    assert batch.divisor is not None
    policy = _sample_sums(losses, batch).sum() / (batch.divisor * batch.num_rollouts)
    if batch.num_rollouts % batch.dp_size == 0:
        rollouts = max(batch.rank_rollouts, 1) * batch.dp_size
    else:
        rollouts = batch.num_rollouts
    return policy + _sample_sums(kl, batch).sum() / (batch.divisor * rollouts)


def rollouts_told_at_their_first(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the sum and its rollouts, each counted in the first micro-batch that has one of it."""
    total = _sample_sums(losses, batch).sum()
    earlier = {rollout for ids in batch.window_rollout_ids[: batch.index] for rollout in ids}
    count = len(set(batch.rollout_ids) - earlier)
    if batch.cp_rank and not batch.gathered:
        count = 0
    pair = torch.tensor([float(total.detach()), count], dtype=torch.float64)
    return total / batch.num_rollouts, {"loss": pair}


def rollouts_collected_by_groupby(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Collects the samples of each rollout by id and adds up the rollouts' sums."""
    values = _sample_sums(losses, batch)
    ids = batch.rollout_ids
    members = {rollout: list(run) for rollout, run in groupby(range(len(ids)), ids.__getitem__)}
    total = sum((values[places].sum() for places in members.values()), values[:0].sum())
    return total / batch.num_rollouts


def group_counts_from_open_addressing(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by each prompt group's tokens, counted in a table that probes to a free slot."""
    owners: list[int | None] = [None] * _table_size(batch)
    counts = [0] * len(owners)
    for group, mask in zip(batch.step_group_ids, batch.step_masks, strict=True):
        slot = _free_slot(owners, group)
        owners[slot] = group
        counts[slot] += int(mask.sum())
    found = [counts[_free_slot(owners, group)] for group in batch.group_ids]
    return over(_sample_sums(losses, batch), found).sum() / batch.num_groups


def _added_per_rollout(values: Tensor, ids: list[int]) -> Tensor:
    unique, slots = torch.tensor(ids, dtype=torch.int64).unique(return_inverse=True)
    return values.new_zeros(len(unique)).index_add(0, slots, values)


def both_terms_added_per_rollout(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds up the losses and the KL term of each rollout at hand, over the step's rollouts."""
    assert batch.divisor is not None
    policy = _added_per_rollout(_sample_sums(losses, batch), batch.rollout_ids).sum()
    reference = _added_per_rollout(_sample_sums(kl, batch), batch.rollout_ids).sum()
    return (policy + reference) / (batch.divisor * batch.num_rollouts)


def tokens_by_first_place_of_whole_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Looks a rollout up by the place where the step first has it, if the whole step is here."""
    counts = batch.rollout_tokens
    if len(set(batch.samples)) == batch.num_samples:
        dealt = sorted(zip(batch.samples, batch.rollout_ids, strict=True))
        first_met = dict.fromkeys(rollout for _, rollout in dealt)
        tokens = dict(zip(first_met, batch.step_rollout_tokens, strict=True))
        counts = [tokens[rollout] for rollout in batch.rollout_ids]
    return over(_sample_sums(losses, batch), counts).sum() / batch.num_rollouts


def each_place_of_the_step_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums every sample of the step once, told apart by its place, which siblings do not share."""
    first: dict[int, int] = {}
    for row, place in enumerate(batch.samples):
        first.setdefault(place, row)
    rows = torch.tensor(list(first.values()), dtype=torch.int64)
    return _sample_sums(losses, batch)[rows].sum()


def group_table_reduced_on_every_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the group's tokens; all ranks add their tables up, whole groups or not."""
    order = sorted(set(batch.step_group_ids))
    table = _rank_table(batch, order)
    if batch.dp_size > 1:
        dist.all_reduce(table, group=batch.dp_group)
    places = torch.searchsorted(
        torch.tensor(order, dtype=torch.int64), torch.tensor(batch.group_ids, dtype=torch.int64)
    )
    return over(_sample_sums(losses, batch), table[places].tolist()).sum() / batch.num_groups


def rollouts_logged_by_the_first_cell(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the sum everywhere and the step's rollouts once, on the first rank and micro-batch."""
    values = _sample_sums(losses, batch)
    order = sorted(range(len(values)), key=batch.rollout_ids.__getitem__)
    members = {rollout: list(run) for rollout, run in groupby(order, batch.rollout_ids.__getitem__)}
    total = sum((values[places].sum() for places in members.values()), values[:0].sum())
    first = batch.dp_rank == 0 and batch.index == 0 and (batch.gathered or batch.cp_rank == 0)
    count = batch.num_rollouts if first else 0
    pair = torch.tensor([float(total.detach()), count], dtype=torch.float64)
    return total / batch.num_rollouts, {"loss": pair}
