"""Of which cases it is worth while to note what runs, where every line costs time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from aggverify.steps.case import Case
from aggverify.steps.case_tags import tags

FIRST = 16
"""Cases of each sort."""
_FEW_MICRO_BATCHES, _FEW_SAMPLES, _FEW_TOKENS, _LARGE_LOSS = 4, 32, 256, 1e9


class TraceSampling:
    """Counts cases by sort: those of one sort are likely to run the same lines again.

    Counted where cases are sent, not in ranks, which may be replaced in the midst of a run.
    """

    def __init__(self) -> None:
        self._cases: Counter[Hashable] = Counter()

    def usual(self, case: Case, whose: Hashable) -> bool:
        """Whether as many of its sort as are worth noting came before it.

        ``whose``: for whom lines are noted apart from all others. A large case is never usual,
        since code may branch on any size.
        """
        sort = _sort(case)
        if sort is None:
            return False
        self._cases[whose, sort] += 1
        return self._cases[whose, sort] > FIRST


def _sort(case: Case) -> Hashable | None:
    """Return what cases of a sort have in common; None for a large case, which has no sort."""
    step, layout = case.step, case.layout
    if (
        len(case.losses) > _FEW_TOKENS
        or layout.num_microbatches > _FEW_MICRO_BATCHES
        or len(step.samples) > _FEW_SAMPLES
    ):
        return None
    rejected = any(s.original_mask is not None for s in step.samples)
    ordinary = all(-_LARGE_LOSS < loss < _LARGE_LOSS for loss in case.losses)
    return tags(case), case.dtype, layout.cp_kind, rejected, ordinary
