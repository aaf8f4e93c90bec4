"""Cases under way: the ranks run them while the parent judges the ones before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aggverify.checks import Finding
from aggverify.errors import NotJudged
from aggverify.execution.deadline import OutOfTime
from aggverify.execution.executed import Execution
from aggverify.execution.kept import Submitted
from aggverify.run.search.batches import nothing
from aggverify.steps.case import Case

JudgeCases = Callable[[Sequence[Case]], Sequence[Finding | None]]
"""Runs cases and judges them, one finding or None each."""
Judged = dict[Case, Finding | None]


@dataclass(frozen=True, slots=True)
class Running:
    """Some cases of a check on the ranks; judging them is the parent's work."""

    _submitted: Submitted
    _judge: Callable[[Sequence[Execution]], list[Finding | None]]

    def findings(self) -> list[Finding | None]:
        """Wait for the ranks and judge, one finding or None per case; once only."""
        return self._judge(self._submitted.executions())

    def stumbles(self) -> bool:
        """Wait until the ranks are half through; whether any case up to there came to no result."""
        return self._submitted.stumbles()


Submit = Callable[[Sequence[Case]], Running]
"""Starts cases on the ranks."""


class Pipeline:
    """Keeps one batch of cases on the ranks while the one before is judged."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._cases: Sequence[Case] = ()
        self._running: Running | None = None

    def push(self, cases: Sequence[Case]) -> Judged:
        """Start a batch when half of the one before is done, which is judged once all of it is.

        After a failure that is a finding nothing is started.
        """
        if self._running is not None and self._running.stumbles():
            # Each such case may cost seconds: judged first.
            judged = self.drain()
            if any(judged.values()):
                return judged
        else:
            judged = {}
        try:
            submitted = self._submit(cases)
        except (OutOfTime, NotJudged):
            judged |= self.drain()  # it has been run: what it shows is not lost
            if any(judged.values()):
                return judged
            raise
        before, self._cases = self._cases, cases
        running, self._running = self._running, submitted
        return judged if running is None else _judged(before, running)

    def rest(self, judged: Judged, then: Callable[[], None] = nothing) -> Judged:
        """Return these results with those of what is still under way, as :meth:`drain` does.

        Where one is a finding already, nothing that keeps the rest from being judged takes it away.
        """
        try:
            return judged | self.drain(then)
        except NotJudged:
            if not any(judged.values()):
                raise
            return judged

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way."""
        return self._running is None

    def drain(self, then: Callable[[], None] = nothing) -> Judged:
        """Judge what is still under way.

        ``then`` is called once half of it is done without a failure, and may start what comes next.
        """
        running, self._running = self._running, None
        if running is not None and not running.stumbles():
            then()
        return {} if running is None else _judged(self._cases, running)


def _judged(cases: Sequence[Case], running: Running) -> Judged:
    judged: Judged = {}
    for case, finding in zip(cases, running.findings(), strict=True):
        # Two zeros are equal, and what one of them shows the other need not.
        judged[case] = judged.get(case) or finding
    return judged


def first_finding(judged: Judged) -> Finding | None:
    """Return the first finding there is."""
    return next((found for found in judged.values() if found is not None), None)
