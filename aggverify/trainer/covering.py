"""Which lines and which outcomes of conditions a step runs in the candidate's own file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Protocol

from aggverify.steps.case import Case
from aggverify.steps.kinds import kinds
from aggverify.trainer.conditions import Conditions

FIRST = 16
"""Cases of each sort that a rank looks at where every line costs time."""
_FEW_MICRO_BATCHES, _FEW_SAMPLES, _FEW_TOKENS, _LARGE_LOSS = 4, 32, 256, 1e9
Subject = tuple[object, ...]
"""What is called, and for whom: nothing of another one's is known of this one."""


class Noting(Protocol):
    """How this interpreter tells what runs."""

    lines: set[int]
    outcomes: set[int]
    cheap: bool
    """Whether what has been seen costs nothing any more."""

    def begin(self, subject: Subject, case: Case) -> bool:
        """Note from here on; whether it can be."""

    def end(self) -> None:
        """Note no more."""


class Covering:
    """Notes what runs of one file, in a rank. Another tool's tracing is left alone."""

    def __init__(self, file: str | None, conditions: Conditions | None) -> None:
        self._how: Noting | None = None
        if file is not None and conditions is not None:
            self._how = _noting(file, conditions)
        self._cases: Counter[tuple[Subject, Hashable]] = Counter()

    @contextmanager
    def noting(self, case: Case, subject: Subject = (), *, always: bool = False) -> Iterator[None]:
        """Note what runs in a ``with``: of every case that is large or ``always`` looked at, and of
        a subject's first ones of each sort, which take the same lines again and again."""
        how = self._how
        if how is None:
            yield
            return
        how.lines, how.outcomes = set(), set()
        wanted = always or how.cheap or self._is_new(case, subject)
        if not wanted or not how.begin(subject, case):
            yield
            return
        try:
            yield
        finally:
            how.end()

    def _is_new(self, case: Case, subject: Subject) -> bool:
        sort = _sort(case)
        if sort is None:
            return True
        self._cases[subject, sort] += 1
        return self._cases[subject, sort] <= FIRST

    @property
    def lines(self) -> tuple[int, ...]:
        """Those of the last ``with``; of what costs nothing any more, some may be left out that
        were told before on cases of all these kinds."""
        return () if self._how is None else tuple(sorted(self._how.lines))

    @property
    def outcomes(self) -> tuple[int, ...]:
        """The same of conditions, as :func:`conditions.outcome` numbers them."""
        return () if self._how is None else tuple(sorted(self._how.outcomes))


def _noting(file: str, conditions: Conditions) -> Noting:
    if sys.version_info >= (3, 12):
        from aggverify.trainer.monitoring import Monitoring

        return Monitoring(file, conditions)
    from aggverify.trainer.tracing import Tracing

    return Tracing(file, conditions)


def _sort(case: Case) -> Hashable | None:
    """What cases have in common that take the same lines; None for one that is large, since code
    may branch on any size."""
    step, layout = case.step, case.layout
    if (
        len(case.losses) > _FEW_TOKENS
        or layout.num_microbatches > _FEW_MICRO_BATCHES
        or len(step.samples) > _FEW_SAMPLES
    ):
        return None
    rejected = any(s.original_mask is not None for s in step.samples)
    usual = all(-_LARGE_LOSS < loss < _LARGE_LOSS for loss in case.losses)
    return kinds(case), case.dtype, layout.cp_kind, rejected, usual
