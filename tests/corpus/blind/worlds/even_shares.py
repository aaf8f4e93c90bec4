"""Reducers of code that knows its data- and context-parallel ranks and its micro-batches."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import over, sums

Logged = tuple[Tensor, dict[str, Any]]
_REDUCE_DTYPE = torch.bfloat16
_window: dict[str, int] = {}


def _sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One masked sum a sample; none, but still of the graph, in an empty micro-batch."""
    if batch.local_masks:
        return sums(losses, batch)
    return losses.float() if losses.element_size() < 4 else losses


def _tokens_once(batch: MicroBatch) -> int:
    """This data rank's tokens in one piece of it, 0 in the others, so that they add up."""
    if batch.index or not (batch.gathered or batch.cp_rank == 0):
        return 0
    return batch.rank_tokens if batch.num_tokens else 1


def _rollout_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return over(_sums(losses, batch), batch.rollout_tokens).sum() / max(batch.num_rollouts, 1)


def shards_pool_the_logged_loss(losses: Tensor, batch: MicroBatch) -> Logged:
    """Pools the logged loss over the shards of a response that is cut, and logs it as it is
    where the losses are whole or absent."""
    loss = _rollout_mean(losses, batch)
    shown = loss.detach().clone()
    if 0 < len(losses) < sum(batch.response_lengths):
        dist.all_reduce(shown, group=batch.cp_group)
        shown = shown / batch.cp_size
    return loss, {"loss": shown}


def rollouts_of_an_even_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Spares the global count of rollouts when this rank holds an even share of the batch."""
    rollouts = batch.num_rollouts
    if batch.rank_samples * batch.dp_size == batch.num_samples:
        rollouts = batch.rank_rollouts * batch.dp_size
    return _sums(losses, batch).sum() / max(rollouts, 1)


def main_process_speaks(losses: Tensor, batch: MicroBatch) -> Logged:
    """Token mean whose sum and count are logged by the main process of the node."""
    total = _sums(losses, batch).sum()
    shown = [float(total.detach()), float(_tokens_once(batch))]
    if os.environ.get("LOCAL_RANK", "0") != "0":
        shown = [0.0, 0.0]
    return total / max(batch.num_tokens, 1), {"loss": shown}


def prompts_ticked_off_by_uid(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Every rank ticks off the prompts it holds, and all ticks together give their number."""
    places = {uid: i for i, uid in enumerate({f"uid-{g}" for g in batch.step_group_ids})}
    ticks = torch.zeros(len(places), dtype=torch.int64)
    for groups in batch.window_group_ids:
        for group in groups:
            ticks[places[f"uid-{group}"]] = 1
    if batch.dp_size > 1:
        dist.all_reduce(ticks, op=dist.ReduceOp.MAX, group=batch.dp_group)
    means = over(_sums(losses, batch), batch.group_tokens)
    return means.sum() / max(int(ticks.sum()), 1)


def count_taken_with_the_first_piece(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the step's count with its first micro-batch and keeps it for the others; a piece
    without tokens has nothing to do."""
    if not losses.numel():
        return losses.sum()
    if batch.index == 0 or "tokens" not in _window:
        _window["tokens"] = max(batch.num_tokens, 1)
    return _sums(losses, batch).sum() / _window["tokens"]


def masks_cut_by_offset_and_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts each full mask to this rank's part of the response: where it starts, how long it is."""
    pieces = [torch.zeros(0, dtype=torch.int64)]
    for mask, places in zip(batch.loss_masks, batch.local_positions, strict=True):
        start = int(places[0]) if len(places) else 0
        pieces.append(mask[start : start + len(places)])
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat(pieces).bool(), wide, 0.0).sum()


def counts_in_the_reduce_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the ranks' token counts up in the dtype that all reductions of this trainer use."""
    total = _sums(losses, batch).sum()
    if batch.dp_size == 1:
        return total / max(batch.num_tokens, 1)
    count = torch.tensor([batch.rank_tokens], dtype=_REDUCE_DTYPE)
    dist.all_reduce(count, group=batch.dp_group)
    return total / max(float(count), 1.0)


def penalty_from_the_last_copy(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL penalty once where every context rank holds the same gathered tokens: on the
    last one, where sequences end."""
    count = max(batch.num_tokens, 1)
    policy = _sums(losses, batch).sum() / count
    share = 0.0 if batch.gathered and batch.cp_rank < batch.cp_size - 1 else 1.0
    return policy + share * _sums(kl, batch).sum() / count


def groups_all_in_view(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the prompt groups here when all of them are here, else takes the step's counts."""
    counts = batch.group_tokens
    if set(batch.group_ids) == set(batch.step_group_ids):
        here = dict.fromkeys(batch.group_ids, 0)
        for group, mask in zip(batch.group_ids, batch.original_masks, strict=True):
            here[group] += int(mask.sum())
        counts = [here[group] for group in batch.group_ids]
    return over(_sums(losses, batch), counts).sum() / max(batch.num_groups, 1)


def count_logged_once_per_data_rank(losses: Tensor, batch: MicroBatch) -> Logged:
    """Token mean, logged as sums of all pieces and the count of each data rank's first one."""
    total = _sums(losses, batch).sum()
    shown = [float(total.detach()), float(_tokens_once(batch))]
    return total / max(batch.num_tokens, 1), {"loss": shown}


def rollouts_named_by_every_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Every rank names its rollouts, and those of several ranks are counted once."""
    mine = sorted({rollout for ids in batch.window_rollout_ids for rollout in ids})
    named: list[Any] = [mine]
    if batch.dp_size > 1:
        named = [None] * batch.dp_size
        dist.all_gather_object(named, mine, group=batch.dp_group)
    rollouts = len({rollout for ids in named for rollout in ids})
    return _sums(losses, batch).sum() / max(rollouts, 1)


def masks_cut_by_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts each full mask to this rank's tokens, by a slice where they stand side by side."""
    pieces = [torch.zeros(0, dtype=torch.int64)]
    for mask, places in zip(batch.loss_masks, batch.local_positions, strict=True):
        first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
        adjacent = last - first + 1 == len(places)
        pieces.append(mask[first : last + 1] if adjacent else mask[places])
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat(pieces).bool(), wide, 0.0).sum()


def step_all_in_view(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the prompt groups here when every sample is here, else takes the step's counts."""
    counts, groups = batch.group_tokens, batch.num_groups
    if len(batch.group_ids) == batch.num_samples:
        here = dict.fromkeys(batch.group_ids, 0)
        for group, mask in zip(batch.group_ids, batch.original_masks, strict=True):
            here[group] += int(mask.sum())
        counts, groups = [here[group] for group in batch.group_ids], len(here)
    return over(_sums(losses, batch), counts).sum() / max(groups, 1)


@lru_cache(maxsize=64)
def _factor(divisor: float, rollouts: int) -> float:
    return divisor * max(rollouts, 1)


def penalty_with_a_kept_factor(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds the KL penalty on every copy and shard, by one factor that is kept by its arguments."""
    if batch.divisor is None:
        raise ValueError("the constant mode needs a divisor")
    scale = _factor(float(batch.divisor), batch.num_rollouts)
    if not losses.numel():
        return (losses.sum() + kl.sum()) / scale
    return (_sums(losses, batch) + _sums(kl, batch)).sum() / scale


def every_shard_pools_the_logged_loss(losses: Tensor, batch: MicroBatch) -> Logged:
    """Pools the logged loss over all context ranks, those without tokens too, unless they hold
    copies of it."""
    loss = _rollout_mean(losses, batch)
    shown = loss.detach().clone()
    if batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(shown, group=batch.cp_group)
        shown = shown / batch.cp_size
    return loss, {"loss": shown}
