"""One check on one subject: stored cases, search, confirmation, diagnosis."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from aggverify.case import Case
from aggverify.checks import Check, Finding
from aggverify.checks.base import COSTLY
from aggverify.checks.refusal import refusal
from aggverify.diagnosis import Diagnosis
from aggverify.execution import Laboratory
from aggverify.run.catalogue import fits, grid, hard_cases
from aggverify.run.explaining import explain
from aggverify.run.reducing import reduced
from aggverify.run.relevance import Relevance, relevance
from aggverify.run.search import search, size_of
from aggverify.run.smallest import shown_smaller
from aggverify.run.tally import Tally
from aggverify.strategies import Space
from aggverify.subject import Subject

FIRST_BATCH, LAST_BATCH = 4, 64
"""Stored cases sent to the ranks in one go, doubling: an early fault costs little, a late one is
rare, and progress is seen in between."""


@dataclass(slots=True)
class Checking:
    """Runs one check; ``progress`` is told after every few executed cases."""

    check: Check
    subject: Subject
    space: Space
    laboratory: Laboratory
    tally: Tally
    progress: Callable[[], None]
    cases: int = 0
    complete: bool = True
    """False when time ran out before the cases that are not drawn did."""
    refusals: list[str] = field(default_factory=list)
    """With what words the candidate refused a case, where it may."""

    def judge(self, case: Case) -> Finding | None:
        """Execute the variants of one case and judge them."""
        return self.submit([case])()[0]

    def submit(self, cases: Sequence[Case]) -> Callable[[], list[Finding | None]]:
        """Start these cases' variants; calling the result waits and judges."""
        lean = self.check.control_first and self.subject.has_oracle
        variants = [self.check.variants(case)[1 if lean else 0 :] for case in cases]
        wait = self.laboratory.submit(self.subject, [c for group in variants for c in group])

        def judged() -> list[Finding | None]:
            executions = iter(wait())
            found = []
            for case, group in zip(cases, variants, strict=True):
                mine = [next(executions) for _ in group]
                self.tally.sights.add(self.subject, [e.case for e in mine])
                finding = self.check.judge(self.subject, mine)
                if self.check.may_refuse and (words := refusal(mine[-1])):
                    self.refusals.append(words)
                if finding is None:
                    self.tally.add(self.subject, mine, scalars=self.check.judges_scalar)
                elif lean:
                    # Now the control decides whose fault it is.
                    control = self.laboratory.run(self.subject, self.check.variants(case)[:1])
                    finding = self.check.judge(self.subject, [*control, *mine])
                found.append(finding)
            self.cases += len(cases)
            self.progress()
            return found

        return judged

    def stored_cases(self) -> list[Case]:
        """Catalogue and grid, brought into this check's space, duplicates dropped."""
        if self.check.only is not None:
            return []
        stored = (*hard_cases(), *grid(self.subject.max_world, self.space.cp_kinds))
        if self.subject.nonlinear:
            stored = tuple(replace(case, dtype="float64") for case in stored)
        projected = dict.fromkeys(self.check.project(case) for case in stored)
        return [case for case in projected if fits(case, self.space)][: self.check.max_stored]

    def stored_failure(self, deadline: float = math.inf) -> Finding | None:
        """The first finding among the cases that are not drawn, or None."""
        running: list[Callable[[], list[Finding | None]]] = []
        failed: Finding | None = None
        # Ahead of the ranks only where failures are rare: each case under way may cost seconds.
        ahead = 0 if self.check.only is None else 1
        for batch in self._batches():
            running.append(self.submit(batch))
            while len(running) > ahead and failed is None:
                failed = next((f for f in running.pop(0)() if f is not None), None)
            self.complete = time.monotonic() < deadline
            if failed is not None or not self.complete:
                break
        for wait in running:
            failed = failed or next((f for f in wait() if f is not None), None)
        return failed

    def _batches(self) -> Iterator[list[Case]]:
        """The cases that are not drawn, in batches that double."""
        only = self.check.only
        cases = iter(self.stored_cases())
        if only is not None:
            cases = (case for case in only(self.subject) if fits(case, self.space))
        size = FIRST_BATCH
        while batch := list(islice(cases, size)):
            yield batch
            size = min(2 * size, LAST_BATCH)

    def run(self, *, examples: int, seed: int, deadline: float) -> Finding | None:
        """The finding with the smallest case, or None when every case passes."""
        if self.check.only is not None:
            return self.stored_failure(deadline)
        failed = self.stored_failure()
        if failed is not None:
            shown = self._shown_smaller(failed)
            if shown is not None or failed.code in COSTLY:
                return self._reduced(shown or failed)
        # A failure is already certain: let the search have the time to make it small.
        if failed is not None:
            deadline = max(deadline, time.monotonic() + 3.0)
        smallest = search(
            self.space, self.submit, max_examples=examples, seed=seed, deadline=deadline
        )
        found = [f for f in (smallest, failed) if f is not None]
        if not found:
            return None
        least = min((f for f in found if f.code == found[0].code), key=lambda f: size_of(f.case))
        if failed is None or failed.code != least.code:
            least = self._shown_smaller(least) or least
        return self._reduced(least)

    def _shown_smaller(self, finding: Finding) -> Finding | None:
        return shown_smaller(finding, lambda some: self.submit(some)(), self.space)

    def _reduced(self, finding: Finding) -> Finding:
        return reduced(finding, lambda some: self.submit(some)(), lambda c: fits(c, self.space))

    @property
    def refused(self) -> str | None:
        """How often the candidate refused a case it may refuse, in its own words."""
        if not self.refusals:
            return None
        return f"{len(self.refusals)} of {self.cases} refused: {self.refusals[-1]}"

    def confirm(self, finding: Finding) -> bool:
        """Whether the finding comes back in fresh worlds."""
        self.laboratory.fresh()
        with self.laboratory.patient():
            again = self.judge(finding.case)
        return again is not None and again.code == finding.code

    def relevance(self, finding: Finding) -> Relevance:
        """Which fields of the finding's case matter, from runs with each varied."""
        return relevance(finding, self.space, lambda cases: self.submit(cases)())

    def explain(self, finding: Finding) -> Diagnosis | None:
        """What the candidate computes instead, from observations made for that purpose."""
        return explain(self.subject, finding, self.laboratory, self.stored_cases())
