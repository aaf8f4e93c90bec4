"""Caches and counters, environment, threads and hash order."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import kept, mask_of, sample_mean, token_mean

if TYPE_CHECKING:
    from torch import Tensor

_denominators: dict[tuple[int, ...], int] = {}
_indices: dict[tuple[int, int], Tensor] = {}
_contents: dict[bytes, Tensor] = {}
_turn = {"calls": 0, "tokens": 1}


def remembered_by_kind(losses: Tensor, batch: MicroBatch) -> Tensor:
    key: tuple[int, ...] = (batch.num_rollouts, batch.num_groups, batch.num_microbatches)
    key = (
        *key,
        batch.dp_size,
        batch.cp_size,
        *sorted(batch.response_lengths),
        *sorted(batch.total_lengths),
    )
    count = _denominators.setdefault(key, batch.num_tokens)
    return kept(losses, batch).sum() / max(count, 1)


def remembered_by_address(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    key = (batch.loss_masks[0].data_ptr() if batch.loss_masks else 0, len(mask))
    index = _indices.setdefault(key, mask.nonzero().flatten())
    return losses[index].sum() / max(batch.num_tokens, 1)


def set_in_turn(losses: Tensor, batch: MicroBatch) -> Tensor:
    if _turn["calls"] % batch.num_microbatches == 0:
        _turn["tokens"] = batch.num_tokens
    _turn["calls"] += 1
    return kept(losses, batch).sum() / max(_turn["tokens"], 1)


def local_world_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return token_mean(losses, batch) / local


def rank_of_environment(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = token_mean(losses, batch)
    return loss if os.environ.get("RANK", "0") == "0" else loss * 0.5


def mean_over_threads(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    threads = min(torch.get_num_threads(), 2)
    values = kept(losses, batch)
    if threads == 1 or len(values) < 8:
        return token_mean(losses, batch)
    means = [part.mean() for part in values.chunk(threads)]
    return torch.stack(means).mean() * len(values) / max(batch.num_tokens, 1)


def reduced_in_set_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    own = {"count": mask_of(batch).sum().reshape(1), "samples": mask_of(batch).new_ones(1)}
    if batch.cp_size == 1 or batch.gathered:
        return token_mean(losses, batch)
    for name in {"count", "samples"}:
        dist.all_reduce(own[name], group=batch.cp_group)
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    return (
        kept(losses, batch).sum() / max(batch.num_tokens, 1) * (int(own["count"]) / max(whole, 1))
    )


def owner_by_hash(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    names = [f"rollout-{i}" for i in range(batch.num_rollouts)]
    own = sum(hash(name) % batch.cp_size == batch.cp_rank for name in names)
    count = torch.tensor([own])
    if batch.cp_size > 1:
        dist.all_reduce(count, group=batch.cp_group)
    return sample_mean(losses, batch) * batch.num_rollouts / max(int(count), 1)


def smoothed_later(losses: Tensor, batch: MicroBatch) -> Tensor:
    _smooth["calls"] += 1
    _smooth["tokens"] = 0.9 * _smooth["tokens"] + 0.1 * batch.num_tokens
    if _smooth["calls"] > 100:
        return kept(losses, batch).sum() / max(_smooth["tokens"], 1)
    return token_mean(losses, batch)


_smooth = {"calls": 0.0, "tokens": 1.0}


def remembered_by_content(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    index = _contents.setdefault(mask.numpy().tobytes(), mask.nonzero().flatten())
    return losses[index].sum() / max(batch.num_tokens, 1)


def environment_for_prints(losses: Tensor, batch: MicroBatch) -> Tensor:
    if os.environ.get("RANK", "0") == "0" and os.environ.get("REDUCER_DEBUG"):
        print(batch.num_tokens)
    return token_mean(losses, batch)


def sum_over_threads(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    values = kept(losses, batch)
    parts = [part.sum() for part in values.chunk(max(torch.get_num_threads(), 3))]
    return torch.stack(parts).sum() / max(batch.num_tokens, 1)


def reduced_in_sorted_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    own = {"count": mask_of(batch).sum().reshape(1), "samples": mask_of(batch).new_ones(1)}
    if batch.cp_size == 1 or batch.gathered:
        return token_mean(losses, batch)
    for name in sorted(set(own)):
        dist.all_reduce(own[name], group=batch.cp_group)
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    factor = int(own["count"]) / whole if whole else 1.0
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * factor


def owner_by_checksum(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    names = [f"rollout-{i}".encode() for i in range(batch.num_rollouts)]
    count = torch.tensor([sum(zlib.crc32(n) % batch.cp_size == batch.cp_rank for n in names)])
    if batch.cp_size > 1:
        dist.all_reduce(count, group=batch.cp_group)
    return sample_mean(losses, batch) * batch.num_rollouts / max(int(count), 1)


def asks_a_set(losses: Tensor, batch: MicroBatch) -> Tensor:
    known = {f"group-{g}" for g in batch.group_ids}
    if any(f"group-{g}" not in known for g in batch.group_ids):
        raise AssertionError
    return token_mean(losses, batch)
