"""Context parallelism through the native signature: shard counts and factors of cp_size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept, over, tokens, weighted

if TYPE_CHECKING:
    from torch import Tensor


def shard_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = tokens(batch.local_masks) if batch.cp_size > 1 else max(batch.num_tokens, 1)
    return kept(losses, batch).sum() / count * batch.dp_size


def token_path_divided(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / batch.cp_size


def statistics_over_dp_only(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = over(batch.dp_group, sum(int(mask.sum()) for mask in batch.local_masks))
    return kept(losses, batch).sum() / max(count, 1)


def applied_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    share = weighted(losses, batch, [max(n, 1) for n in batch.rollout_tokens])
    return share * batch.cp_size


def copies_added_in_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    from torch.distributed.nn.functional import all_reduce

    mean = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return all_reduce(mean, group=batch.cp_group)  # type: ignore[no-untyped-call, no-any-return]


def backward_stays_local(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    mean = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    everywhere = mean.detach().clone()
    dist.all_reduce(everywhere, group=batch.cp_group)
    return (mean + (everywhere - mean).detach()) * batch.dp_size


def local_count_returned(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), sum(int(mask.sum()) for mask in batch.local_masks)


def count_floored(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    count = sum(int(mask.sum()) for mask in batch.loss_masks) // batch.cp_size
    return kept(losses, batch).sum() / batch.cp_size, count


MUTANTS = (
    Mutant(
        "shard_means",
        3,
        "Megatron-LM #7513",
        "token_mean",
        "mean",
        ("AGV201",),
        "mean-over-cp-shards",
    ),
    Mutant(
        "token_path_divided",
        11,
        "slime #990",
        "token_mean",
        "megatron-token",
        ("AGV201",),
        "cp-scaling-missing",
    ),
    Mutant(
        "statistics_over_dp_only",
        27,
        "slime #2235",
        "token_mean",
        "sum",
        ("AGV201", "AGV202"),
        "statistics-over-dp-only",
    ),
    Mutant(
        "applied_twice",
        49,
        "SkyRL #1420, fixed in #1751",
        "sample_mean",
        "megatron-sample",
        ("AGV201",),
        "cp-counted-twice",
    ),
    Mutant(
        "copies_added_in_backward",
        38,
        "slime #1748",
        "token_mean",
        "sum",
        ("AGV201",),
        "cp-counted-twice",
    ),
    Mutant(
        "backward_stays_local",
        39,
        "lightly #1977",
        "token_mean",
        "mean",
        ("AGV201",),
        "cp-scaling-missing",
    ),
    Mutant(
        "local_count_returned",
        62,
        "slime's and miles' per-token contract",
        "token_mean",
        "megatron-token",
        ("AGV201",),
        "local-count-returned",
    ),
    Mutant(
        "count_floored",
        67,
        "per-micro-batch integer division",
        "token_mean",
        "megatron-token",
        ("AGV201",),
        "count-floored",
    ),
)
