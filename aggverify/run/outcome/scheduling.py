"""What earlier outcomes leave to do of a planned check, by the traits of codes and checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aggverify import model
from aggverify.checks.base import FORMULA, Finding
from aggverify.codes.state import Incomplete, State
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space, folded, sizes
from aggverify.oracles.bounds import PRECISIONS
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.verdict import ReportedFinding
from aggverify.run.planning.plan import PlannedCheck
from aggverify.steps.layouts import dimensions


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one entry: what was done, what was found if anything, what has been seen."""

    entry: PlannedCheck
    """Its subject has what was found out on the way."""
    summary: model.CheckRecord
    findings: tuple[ReportedFinding, ...]
    """Findings of different causes, as far as the check distinguishes them."""
    statistics: RunStatistics
    """Of this entry and of those before it."""
    stopped: Incomplete | None = None
    """What ended it before its time."""

    @property
    def wrong(self) -> set[str]:
        """Aspects of the reducer that are known to be wrong from now on."""
        failed = {self.entry.check.aspect} if self.summary.state is State.FAILED else set()
        return failed.union(*(report.finding.traits.spoils for report in self.findings))


def prune(entry: PlannedCheck, earlier: Sequence[Outcome]) -> PlannedCheck:
    """Return the entry after these outcomes: skipped, on fewer ranks, or without the oracle.

    Or as it was.
    """
    found = [report.finding for outcome in earlier for report in outcome.findings]
    wrong = set[str]().union(*(outcome.wrong for outcome in earlier))
    if entry.instead is not None or entry.space is None:
        return entry
    if entry.check.last and any(outcome.summary.state is State.FAILED for outcome in earlier):
        return _not_judged(entry, "other checks fail already")
    if any(f.traits.unsteady for f in found):
        return _not_judged(entry, "results depend on more than the step")
    space = entry.space
    for fatal in (f for f in found if f.traits.ends_the_run or f.traits.costs_a_world):
        left = _outside(space, fatal)
        if left is None:
            return _not_judged(entry, "the reducer does not get through a step")
        space = left
        if not sizes(space):
            return _not_judged(entry, "the reducer gets through no such step")
    for need in entry.check.needs:
        if need.aspect in wrong:
            return _not_judged(entry, need.otherwise)
    if wrong.intersection(entry.check.alone_after):
        space = replace(space, max_dp=1, max_cp=1, max_microbatches=1, min_units=1, min_world=1)
    subject = entry.subject.knowing(
        trust_formula=FORMULA not in wrong, computes_in=precision(entry.subject, earlier)
    )
    return replace(entry, subject=subject, space=space)


def _not_judged(entry: PlannedCheck, why: str) -> PlannedCheck:
    return entry.becoming(State.NOT_JUDGED, why)


def precision(subject: Subject, earlier: Sequence[Outcome]) -> str:
    """Return the lowest precision that the candidate is known to compute in.

    Any earlier check may have found that out.
    """
    known = {outcome.entry.subject.computes_in for outcome in earlier}
    return min({subject.computes_in, *known}, key=lambda name: PRECISIONS[name].p)


def _outside(space: Space, fatal: Finding) -> Space | None:
    """Return the space without the feature that the finding's smallest step has.

    Steps with it show nothing new and may cost a world of ranks. None where no space would be left,
    as after a plain step.
    """
    case, step = fatal.case, fatal.case.step
    if more := dimensions(case.layout):
        return folded(space, more)
    if len(step.samples) > step.num_rollouts:
        return replace(space, fan_out=False)
    if not all(s.num_original for s in step.samples):
        return None if space.blank_a_unit else replace(space, empty_samples=False)
    if not all(map(math.isfinite, case.losses)):
        return space
    return None if fatal.traits.ends_the_run else space
