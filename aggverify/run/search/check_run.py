"""One check on one subject: stored cases, search, confirmation, diagnosis."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from aggverify.checks import Check, Finding
from aggverify.checks.refusal import refusal
from aggverify.diagnosis import Diagnosis
from aggverify.execution import limits
from aggverify.execution.laboratory import Execution, Laboratory
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import fits, grid, hard_cases
from aggverify.generation.space import Space
from aggverify.run.outcome.tally import Tally
from aggverify.run.outcome.verdict import Relevance
from aggverify.run.search.drawing import search, size_of
from aggverify.run.search.explaining import explain
from aggverify.run.search.pipeline import Judged, Pipeline, Running
from aggverify.run.search.reducing import reduced
from aggverify.run.search.relevance import relevance
from aggverify.run.search.smallest import shown_smaller
from aggverify.steps.case import Case

FIRST_BATCH, LAST_BATCH = 4, 64
"""Stored cases sent to the ranks in one go, doubling: an early fault costs little, a late one is
rare, and progress is seen in between."""


@dataclass(slots=True)
class CheckRun:
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
        return self.submit([case]).findings()[0]

    def submit(self, cases: Sequence[Case]) -> Running:
        """Start these cases' variants."""
        lean = self.check.control_first and self.subject.has_oracle
        variants = [self.check.variants(case)[1 if lean else 0 :] for case in cases]
        wanted = [c for group in variants for c in group]

        def judged(executions: Sequence[Execution]) -> list[Finding | None]:
            rest = iter(executions)
            groups = ([next(rest) for _ in group] for group in variants)
            found = [self._judged(*pair, lean) for pair in zip(cases, groups, strict=True)]
            self.cases += len(cases)
            self.progress()
            return found

        return Running(self.laboratory.submit(self.subject, wanted), judged)

    def _judged(self, case: Case, mine: list[Execution], lean: bool) -> Finding | None:
        self.tally.sights.add(self.subject, [e.case for e in mine])
        self.tally.sights.altered.update(name for e in mine for name in e.altered)
        finding = self.check.judge(self.subject, mine)
        if self.check.may_refuse and (words := refusal(mine[-1])):
            self.refusals.append(words)
        if finding is None:
            self.tally.add(self.subject, mine, scalars=self.check.judges_scalar)
        elif lean:
            # Now the control decides whose fault it is.
            control = self.laboratory.run(self.subject, self.check.variants(case)[:1])
            finding = self.check.judge(self.subject, [*control, *mine])
        return finding

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
        pipeline = Pipeline(self.submit)
        for batch in self._batches():
            failed = _first(pipeline.push(batch))
            self.complete = time.monotonic() < deadline
            if failed is not None or not self.complete:
                break
        else:
            failed = None
        return failed or _first(pipeline.drain())

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
            if shown is not None or failed.traits.costs_a_world:
                return self._reduced(shown or failed)
        # A failure is already certain: let the search have the time to make it small.
        if failed is not None:
            deadline = max(deadline, time.monotonic() + limits.SEARCH_AT_LEAST)
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
        return shown_smaller(finding, lambda some: self.submit(some).findings(), self.space)

    def _reduced(self, finding: Finding) -> Finding:
        return reduced(
            finding, lambda some: self.submit(some).findings(), lambda c: fits(c, self.space)
        )

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
        return relevance(finding, self.space, lambda cases: self.submit(cases).findings())

    def explain(self, finding: Finding) -> Diagnosis | None:
        """What the candidate computes instead, from observations made for that purpose."""
        more = self.check.telling(self.subject) if self.check.telling is not None else ()
        return explain(self.subject, finding, self.laboratory, [*self.stored_cases(), *more])


def _first(judged: Judged) -> Finding | None:
    return next((f for f in judged.values() if f is not None), None)
