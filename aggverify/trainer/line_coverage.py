"""Which lines and which outcomes of conditions a step runs in the candidate's own file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from aggverify.steps.case import Case
from aggverify.trainer.conditions import Conditions

Subject = tuple[object, ...]
"""What is called, and for whom: nothing of another one's is known of this one."""


class LineTracer(Protocol):
    """How this interpreter reports what runs."""

    lines: set[int]
    outcomes: set[int]
    cheap: bool
    """Whether lines that were seen before cost nothing to run again."""

    def begin(self, subject: Subject, case: Case) -> bool:
        """Note from here on; returns whether that is possible."""

    def end(self) -> None:
        """Note no more."""


class LineCoverage:
    """Notes what runs of one file, in a rank. Another tool's tracing is left alone."""

    def __init__(self, file: str | None, conditions: Conditions | None) -> None:
        self._how: LineTracer | None = None
        if file is not None and conditions is not None:
            self._how = _noting(file, conditions)

    def noting(
        self,
        case: Case,
        subject: Subject = (),
        *,
        usual: bool = False,
    ) -> AbstractContextManager[None]:
        """Note what runs in a ``with``; of a ``usual`` case only where it costs nothing."""
        how = self._how
        if how is None:
            return nullcontext()
        how.lines, how.outcomes = set(), set()
        if usual and not how.cheap:
            return nullcontext()
        return self._noting(how, case, subject)

    @contextmanager
    def _noting(self, how: LineTracer, case: Case, subject: Subject) -> Iterator[None]:
        if not how.begin(subject, case):
            yield
            return
        try:
            yield
        finally:
            how.end()

    @property
    def lines(self) -> tuple[int, ...]:
        """Those of the last ``with``.

        A ``cheap`` tracer may leave out lines that it has reported on cases of every kind so far.
        """
        return tuple(sorted(self._how.lines)) if self._how and self._how.lines else ()

    @property
    def outcomes(self) -> tuple[int, ...]:
        """The same of conditions, as :func:`conditions.outcome` numbers them."""
        return tuple(sorted(self._how.outcomes)) if self._how and self._how.outcomes else ()


def _noting(file: str, conditions: Conditions) -> LineTracer:
    if sys.version_info >= (3, 12):
        from aggverify.trainer.monitoring import Monitoring

        return Monitoring(file, conditions)
    from aggverify.trainer.tracing import Tracing

    return Tracing(file, conditions)
