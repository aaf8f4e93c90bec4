"""Who stands where: reducers that are right while ids ascend and members stand side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import sums, tokens, total, weighted

if TYPE_CHECKING:
    from torch import Tensor


def denominators_sorted_by_id(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    counts = [max(tokens[rollout], 1) for rollout in sorted(batch.rollout_ids)]
    return weighted(losses, batch, [n * batch.num_rollouts for n in counts])


def sorted_once_more(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Denominators of samples sorted by length, put back by the order itself, not its inverse."""
    lengths = [len(mask) for mask in batch.loss_masks]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    counts = [max(batch.rollout_tokens[i], 1) for i in order]
    return weighted(losses, batch, [counts[i] * batch.num_rollouts for i in order])


def runs_of_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """unique_consecutive: a rollout whose samples are apart is several, each with its own mean."""
    counts: list[int] = []
    for n, rollout in enumerate(batch.rollout_ids):
        first = last = n
        while first and batch.rollout_ids[first - 1] == rollout:
            first -= 1
        while last + 1 < len(batch.rollout_ids) and batch.rollout_ids[last + 1] == rollout:
            last += 1
        counts.append(tokens(batch.loss_masks[first : last + 1]))
    return weighted(losses, batch, [n * batch.num_rollouts for n in counts])


def overwritten_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    """index_put without accumulate: the last sample of a rollout overwrites the ones before."""
    found = {}
    denominators = zip(batch.rollout_ids, sums(losses, batch), batch.rollout_tokens, strict=True)
    for rollout, own, count in denominators:
        found[rollout] = own / (max(count, 1) * batch.num_rollouts)
    return total(found.values())


MUTANTS = (
    Mutant(
        "sorted_once_more",
        52,
        "unsorted with the sorting order",
        "sample_mean",
        "sum",
        ("AGV101", "AGV205"),
        "inverse-permutation",
    ),
    Mutant(
        "runs_of_rollouts",
        45,
        "unique_consecutive over ids that are not sorted",
        "sample_mean",
        "sum",
        ("AGV101", "AGV205", "AGV202"),
        "runs-for-units",
    ),
    Mutant(
        "overwritten_sums",
        47,
        "index_put without accumulate",
        "sample_mean",
        "sum",
        ("AGV101",),
        "overwritten-sums",
    ),
    Mutant(
        "denominators_sorted_by_id",
        52,
        "slime (zip without strict): denominators and samples in different orders",
        "sample_mean",
        "sum",
        ("AGV205",),
        "sorted-by-id",
    ),
)
