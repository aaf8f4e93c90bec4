"""What is wrong with how samples were dealt to data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from aggverify.conventions.partition_cases import PartitionCase


def mistake(deal: PartitionCase, out: Any, *, whole_groups: bool) -> str | None:
    """Return what is wrong with what the ranks are given; None for nothing."""
    shards = [*out] if isinstance(out, Sequence | Iterator) else None
    if shards is None or len(shards) != deal.ranks:
        got = f"{len(shards)} shards" if shards is not None else type(out).__name__
        return f"returns {got}, and there are {deal.ranks} ranks"
    partitions = [_indices(shard) for shard in shards]
    if any(own is None for own in partitions):
        return "a shard is no list of sample indices, nor a mapping with one as its partition"
    ranks = [own for own in partitions if own is not None]
    every = (
        _coverage(deal, ranks),
        _steps(deal, ranks, whole=whole_groups),
        *(_micro_batches(deal, r, shard) for r, shard in enumerate(shards)),
        _equal_sizes(shards),
    )
    return next((wrong for wrong in every if wrong), None)


def _indices(shard: Any) -> list[int] | None:
    own = shard.get("partition") if isinstance(shard, Mapping) else shard
    try:
        return [int(i) for i in own or ()]
    except (TypeError, ValueError):
        return None


def _coverage(deal: PartitionCase, ranks: Sequence[Sequence[int]]) -> str | None:
    dealt, every = sorted(chain.from_iterable(ranks)), range(len(deal.groups))
    if missing := [i for i in every if i not in dealt]:
        return f"sample {missing[0]} is on no rank"
    twice = [i for i in every if dealt.count(i) > 1]
    if twice:
        holders = [r for r, own in enumerate(ranks) for _ in range(own.count(twice[0]))]
        return f"sample {twice[0]} is dealt {len(holders)} times, to ranks {holders}"
    return None if len(dealt) == len(every) else f"sample {dealt[-1]} does not exist"


def _steps(deal: PartitionCase, ranks: Sequence[Sequence[int]], *, whole: bool) -> str | None:
    """Every rank trains as many of its samples in each step, in order."""
    counts = [len(own) for own in ranks]
    if whole and len(set(counts)) > 1:
        return f"ranks have {counts} samples: they train as many each"
    share = deal.per_step // deal.ranks
    for r, own in enumerate(ranks) if whole else ():
        for start in range(0, len(own), share):
            part = own[start : start + share]
            for group in {deal.groups[i] for i in part}:
                here = sum(deal.groups[i] == group for i in part)
                if here < deal.groups.count(group):
                    where = f"rank {r}" + f", step {start // share}" * (len(own) > share)
                    return f"group {group} is split: {where} has {here} of its samples"
    return None


def _micro_batches(deal: PartitionCase, rank: int, shard: Any) -> str | None:
    """Of a rank, where they are dealt as well: each of its samples in one, within the budget."""
    cells = shard.get("micro_batch_indices") if isinstance(shard, Mapping) else None
    if cells is None:
        return None
    own = _indices(shard) or []
    placed = sorted(chain.from_iterable(cells))
    if placed != list(range(len(own))):
        return f"rank {rank}: the micro-batches have the positions {placed} of {len(own)} samples"
    for k, cell in enumerate(cells):
        tokens = sum(deal.lengths[own[i]] for i in cell)
        if deal.budget and len(cell) > 1 and tokens > deal.budget:
            return f"rank {rank}, micro-batch {k}: {tokens} tokens, of at most {deal.budget}"
    return None


def _equal_sizes(shards: Sequence[Any]) -> str | None:
    given = (shard.get("micro_batch_indices") for shard in shards if isinstance(shard, Mapping))
    counts = [len(cells) for cells in given if cells is not None]
    return f"ranks have {counts} micro-batches: as many each" if len(set(counts)) > 1 else None
