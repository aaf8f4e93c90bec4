"""Data-parallel ranks: local counts, the engine's hidden average, units counted once per rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept, tokens, weighted

if TYPE_CHECKING:
    from torch import Tensor


def rank_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    own = [mask for masks in batch.window_masks for mask in masks]
    return kept(losses, batch).sum() / tokens(own) * batch.cp_size


def average_not_undone(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * batch.cp_size


def context_ranks_forgotten(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * batch.dp_size


def undone_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / (batch.divisor or 1) / batch.num_rollouts * batch.dp_size


def sample_scaling_on_token_path(losses: Tensor, batch: MicroBatch) -> Tensor:
    scale = batch.num_microbatches * batch.dp_size * batch.cp_size / batch.num_rollouts
    return kept(losses, batch).sum() * scale


def count_ignored(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum() * batch.cp_size, sum(int(m.sum()) for m in batch.loss_masks)


def groups_counted_per_rank(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    share = weighted(losses, batch, [max(n, 1) for n in batch.group_tokens])
    return share, len(set(batch.group_ids))


def rollouts_counted_per_rank(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    share = weighted(losses, batch, [max(n, 1) for n in batch.rollout_tokens])
    return share, len(set(batch.rollout_ids))


def partial_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    seen: dict[int, int] = {}
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        seen[group] = seen.get(group, 0) + int(mask.sum())
    return weighted(losses, batch, [batch.num_groups * max(seen[g], 1) for g in batch.group_ids])


def partial_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    seen: dict[int, int] = {}
    for rollout, mask in zip(batch.rollout_ids, batch.loss_masks, strict=True):
        seen[rollout] = seen.get(rollout, 0) + int(mask.sum())
    return weighted(
        losses, batch, [batch.num_rollouts * max(seen[r], 1) for r in batch.rollout_ids]
    )


_SPREAD = ("AGV202", "AGV203", "AGV204")


def largest_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The window's count of the fullest rank: all-reduced by MAX."""
    import torch
    import torch.distributed as dist

    own = torch.tensor(sum(batch.window_tokens))
    if batch.dp_size > 1:
        dist.all_reduce(own, op=dist.ReduceOp.MAX, group=batch.dp_group)
    return kept(losses, batch).sum() / max(int(own), 1)


MUTANTS = (
    Mutant(
        "largest_count",
        9,
        "all_reduce(count, op=ReduceOp.MAX)",
        "token_mean",
        "sum",
        ("AGV203",),
        "maximum-of-counts",
    ),
    Mutant(
        "rank_means", 2, "prime-rl #2358", "token_mean", "mean", ("AGV203",), "mean-over-dp-ranks"
    ),
    Mutant(
        "average_not_undone",
        9,
        "Arctic #119",
        "token_mean",
        "mean",
        ("AGV203",),
        "dp-scaling-missing",
    ),
    Mutant(
        "context_ranks_forgotten",
        10,
        "tmax #9",
        "token_mean",
        "mean",
        ("AGV201",),
        "cp-scaling-missing",
    ),
    Mutant(
        "undone_twice",
        10,
        "tmax #9",
        "constant",
        "sum",
        ("AGV203",),
        "dp-counted-twice",
        divisor=16.0,
    ),
    Mutant(
        "sample_scaling_on_token_path",
        12,
        "slime #987",
        "token_mean",
        "megatron-token",
        ("AGV101",),
        "sample-scaling-on-token-path",
    ),
    Mutant(
        "count_ignored",
        14,
        "miles #3231",
        "token_mean",
        "mean",
        ("AGV101",),
        "count-ignored",
    ),
    Mutant(
        "groups_counted_per_rank",
        61,
        "slime, miles pull requests on prompt_mean",
        "prompt_mean",
        "megatron-token",
        _SPREAD,
        "units-counted-per-cell",
    ),
    Mutant(
        "rollouts_counted_per_rank",
        61,
        "slime, miles pull requests on fan-out",
        "sample_mean",
        "megatron-token",
        _SPREAD,
        "units-counted-per-cell",
    ),
    Mutant(
        "partial_groups",
        43,
        "miles pull request review",
        "prompt_mean",
        "sum",
        _SPREAD,
        "partial-groups",
    ),
    Mutant(
        "partial_rollouts",
        51,
        "miles FSDP",
        "sample_mean",
        "sum",
        _SPREAD,
        "partial-rollouts",
    ),
)
