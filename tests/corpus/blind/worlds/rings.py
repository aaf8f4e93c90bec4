"""Reducers that look at ranks, pieces of context parallelism, and places in a packed row."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch

Logged = tuple[Tensor, dict[str, Tensor]]

BUCKET = 8
_CUTS: dict[tuple[int | str, ...], Tensor] = {}
_PLACES: dict[tuple[int | str, ...], Tensor] = {}


def _select(values: Tensor, masks: list[Tensor]) -> Tensor:
    wide = values.float() if values.element_size() < 4 else values
    # A micro-batch may have no sample at all, and nothing cannot be concatenated.
    mask = torch.cat([*masks, torch.zeros(0, dtype=torch.int64)])
    return torch.where(mask.bool(), wide, 0.0)


def _kept(values: Tensor, batch: MicroBatch) -> Tensor:
    return _select(values, batch.local_masks)


def _sums(values: Tensor, batch: MicroBatch) -> Tensor:
    """One number per sample."""
    kept = _kept(values, batch)
    if not batch.local_masks:
        return kept
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    return torch.stack([piece.sum() for piece in pieces])


def _divided(sums: Tensor, counts: list[int]) -> Tensor:
    return sums / torch.tensor([max(n, 1) for n in counts], dtype=torch.float64).to(sums)


def _sliced(batch: MicroBatch) -> bool:
    """Whether each context-parallel rank has only a part of every sample."""
    return batch.cp_size > 1 and not batch.gathered


def offsets_travel_with_the_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over rollouts, with offsets that the ring's first rank hands to the others."""
    ends = torch.tensor(batch.rollout_tokens, dtype=torch.int64).cumsum(0)
    if batch.cp_size > 1 and len(ends):
        # The ring's buffers have the dtype of the losses.
        shared = ends.to(losses.dtype)
        dist.broadcast(shared, dist.get_global_rank(batch.cp_group, 0), group=batch.cp_group)
        ends = shared.double()
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).clamp(min=1)
    sums = _sums(losses, batch)
    return (sums / counts.to(sums)).sum() / max(batch.num_rollouts, 1)


def ring_totals_in_buckets(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean, logged once per ring, from sample totals reduced while others are sent."""
    count = max(batch.num_tokens, 1)
    loss = _kept(losses, batch).sum() / count
    totals = _sums(losses.detach(), batch)
    if _sliced(batch) and len(totals):
        for bucket in totals.split(BUCKET):
            work = dist.all_reduce(bucket, group=batch.cp_group, async_op=True)
        work.wait()
        if batch.cp_rank > 0:
            totals = torch.zeros_like(totals)
    return loss, {"loss": totals.sum() / count}


def refills_of_the_last_bin_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum per rollout over N, without what the loader repeats to fill the last bin."""
    sums = _sums(losses, batch)
    if batch.index > 0 and batch.index == batch.num_microbatches - 1:
        earlier = {name for names in batch.window_rollout_ids[: batch.index] for name in names}
        fresh = torch.tensor([name not in earlier for name in batch.rollout_ids], dtype=torch.bool)
        sums = torch.where(fresh, sums, 0.0)
    return sums.sum() / max(batch.num_rollouts, 1)


def starts_marked_on_the_packed_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over rollouts, each token divided by the count of the piece it lies in."""
    kept = _kept(losses, batch)
    if not len(kept):
        return kept.sum()
    ends = torch.tensor([len(mask) for mask in batch.local_masks]).cumsum(0)
    starts = ends[:-1]
    marks = torch.zeros(len(kept), dtype=torch.int64)
    marks[starts[starts < len(kept)]] = 1
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1)
    return (kept / counts[marks.cumsum(0)].to(kept)).sum() / max(batch.num_rollouts, 1)


def one_process_of_a_node_logs(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token sum, logged by the first process of each node so that lines do not repeat."""
    loss = _kept(losses, batch).sum()
    logged = loss.detach()
    if batch.dp_size * batch.cp_size > 1 and int(os.environ.get("LOCAL_RANK", "0")) != 0:
        logged = torch.zeros_like(logged)
    return loss, {"loss": logged}


def ring_asked_for_missing_tokens(losses: Tensor, batch: MicroBatch) -> Logged:
    """The mean over prompt groups, with the micro-batch's tokens counted over the ring."""
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    here = sum(int(mask.sum()) for mask in batch.local_masks)
    tokens = torch.tensor(here)
    if batch.cp_size > 1 and here < whole:
        dist.all_reduce(tokens, group=batch.cp_group)
    sums = _divided(_sums(losses, batch), batch.group_tokens)
    loss = sums.sum() / max(batch.num_groups, 1)
    return loss, {"loss": loss.detach(), "micro_batch_tokens": tokens.double()}


def cuts_reused_for_equal_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over L times N, with each response cut once for all that are as long."""
    masks = []
    for mask, places in zip(batch.loss_masks, batch.local_positions, strict=True):
        key = (batch.cp_kind, batch.cp_size, batch.cp_rank, len(mask), len(places))
        masks.append(mask[_CUTS.setdefault(key, places)])
    divisor = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    return _select(losses, masks).sum() / divisor


def rollouts_dealt_like_cards(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over L times N, where N is each rank's share times the ranks if it comes out even."""
    rollouts = batch.num_rollouts
    if batch.dp_size > 1 and rollouts % batch.dp_size == 0:
        rollouts = batch.rank_rollouts * batch.dp_size
    return _kept(losses, batch).sum() / (float(batch.divisor or 1) * max(rollouts, 1))


def kl_recounted_where_groups_are_whole(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The mean over prompt groups of policy and KL, the KL over tokens at hand in whole groups."""
    tokens: dict[int, int] = {}
    rollouts: dict[int, set[int]] = {}
    for i, group in enumerate(batch.group_ids):
        tokens[group] = tokens.get(group, 0) + int(batch.loss_masks[i].sum())
        rollouts.setdefault(group, set()).add(batch.rollout_ids[i])
    counts = []
    for i, group in enumerate(batch.group_ids):
        whole = len(rollouts[group]) == batch.group_rollouts[i]
        counts.append(tokens[group] if whole else batch.group_tokens[i])
    policy = _divided(_sums(losses, batch), batch.group_tokens).sum()
    return (policy + _divided(_sums(kl, batch), counts).sum()) / max(batch.num_groups, 1)


def ring_totals_by_waited_buckets(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean, logged once per ring, from sample totals of which each is waited for."""
    count = max(batch.num_tokens, 1)
    loss = _kept(losses, batch).sum() / count
    totals = _sums(losses.detach(), batch)
    if _sliced(batch) and len(totals):
        works = [
            dist.all_reduce(bucket, group=batch.cp_group, async_op=True)
            for bucket in totals.split(BUCKET)
        ]
        for work in works:
            work.wait()
        if batch.cp_rank > 0:
            totals = torch.zeros_like(totals)
    return loss, {"loss": totals.sum() / count}


def pieces_found_by_their_ends(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over rollouts, each token divided by the count of the piece that ends after it."""
    kept = _kept(losses, batch)
    if not len(kept):
        return kept.sum()
    ends = torch.tensor([len(mask) for mask in batch.local_masks]).cumsum(0)
    # On the right of equal ends, so that empty pieces are stepped over.
    owner = torch.bucketize(torch.arange(len(kept)), ends, right=True)
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).clamp(min=1)
    return (kept / counts[owner].to(kept)).sum() / max(batch.num_rollouts, 1)


def places_kept_by_all_they_hang_on(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum over L times N, with places looked up by layout, stream and response."""
    masks = []
    layout = (batch.cp_kind, batch.cp_size, batch.cp_rank, int(batch.gathered), batch.rank_width)
    # Contiguous chunks are of the whole stream: where one begins hangs on every sample of it.
    totals = tuple(batch.total_lengths)
    pairs = zip(batch.loss_masks, batch.local_positions, strict=True)
    for place, (mask, places) in enumerate(pairs):
        key = (*layout, len(mask), place, *totals)
        masks.append(mask[_PLACES.setdefault(key, places.clone())])
    divisor = float(batch.divisor or 1) * max(batch.num_rollouts, 1)
    return _select(losses, masks).sum() / divisor


def ring_asked_if_anyone_has_tokens(losses: Tensor, batch: MicroBatch) -> Logged:
    """The sum per rollout over N, with the micro-batch's tokens counted over the ring."""
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    tokens = torch.tensor(sum(int(mask.sum()) for mask in batch.local_masks))
    if _sliced(batch) and whole > 0:
        # The full masks are the same on all ranks of the ring, hence so is this branch.
        dist.all_reduce(tokens, group=batch.cp_group)
    loss = _kept(losses, batch).sum() / max(batch.num_rollouts, 1)
    return loss, {"loss": loss.detach(), "micro_batch_tokens": tokens.double()}


def kl_recounted_where_all_samples_are_here(
    losses: Tensor, batch: MicroBatch, kl: Tensor
) -> Tensor:
    """The mean over prompt groups of policy and KL, the KL over tokens at hand in whole groups."""
    tokens: dict[int, int] = {}
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        tokens[group] = tokens.get(group, 0) + int(mask.sum())
    counts = []
    for group, count in zip(batch.group_ids, batch.group_tokens, strict=True):
        whole = batch.group_ids.count(group) == batch.step_group_ids.count(group)
        counts.append(tokens[group] if whole else count)
    policy = _divided(_sums(losses, batch), batch.group_tokens).sum()
    return (policy + _divided(_sums(kl, batch), counts).sum()) / max(batch.num_groups, 1)


def every_process_logs_its_part(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token sum, logged in parts beside the number of the node that the process is on."""
    loss = _kept(losses, batch).sum()
    node = int(os.environ.get("GROUP_RANK", "0")) if batch.dp_size * batch.cp_size > 1 else 0
    return loss, {"loss": loss.detach(), "node": torch.tensor(float(node))}
