"""Who stands where: reducers that are right while ids ascend and members stand side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import weighted

if TYPE_CHECKING:
    from torch import Tensor


def denominators_sorted_by_id(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    counts = [max(tokens[rollout], 1) for rollout in sorted(batch.rollout_ids)]
    return weighted(losses, batch, [n * batch.num_rollouts for n in counts])


MUTANTS = (
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
