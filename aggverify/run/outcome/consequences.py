"""What earlier outcomes leave of a plan's entry, by the traits of codes and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aggverify.checks.base import FORMULA
from aggverify.codes.state import State
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space, sizes
from aggverify.oracles.bounds import PRECISIONS
from aggverify.run.outcome.tally import Tally
from aggverify.run.outcome.verdict import CheckSummary, ReportedFinding
from aggverify.run.planning.plan import Entry
from aggverify.steps.layouts import Layout


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one entry: what was done, what was found if anything, what has been seen."""

    entry: Entry
    """Its subject with what has come out on the way."""
    summary: CheckSummary
    finding: ReportedFinding | None
    tally: Tally
    """Of this entry and of those before it."""

    @property
    def wrong(self) -> frozenset[str]:
        """Aspects of the reducer that are known to be wrong from now on."""
        if self.finding is None:
            return frozenset()
        failed = {self.entry.check.aspect} if self.summary.state is State.FAILED else set()
        return frozenset({*failed, *self.finding.finding.traits.spoils})


def remaining(entry: Entry, earlier: Sequence[Outcome]) -> Entry:
    """The entry after these outcomes: skipped, on fewer ranks, without the oracle, or as it was."""
    found = [o.finding.finding for o in earlier if o.finding is not None]
    wrong = frozenset().union(*(outcome.wrong for outcome in earlier))
    stuck = [f.case.layout for f in found if f.traits.costs_a_world]
    if entry.instead is not None or entry.space is None:
        return entry
    if entry.check.last and any(outcome.summary.state is State.FAILED for outcome in earlier):
        return _not_judged(entry, "other checks fail already")
    if any(f.traits.ends_the_run for f in found):
        return _not_judged(entry, "the reducer does not get through a step")
    if any(f.traits.unsteady for f in found):
        return _not_judged(entry, "results depend on more than the step")
    space = _without(entry.space, stuck)
    if not sizes(space):
        return _not_judged(entry, "ranks are blocked there already")
    for need in entry.check.needs:
        if need.aspect in wrong:
            return _not_judged(entry, f"{need.otherwise}")
    if wrong.intersection(entry.check.alone_after):
        space = replace(space, max_dp=1, max_cp=1, max_microbatches=1, min_units=1, min_world=1)
    subject = entry.subject.knowing(
        trust_formula=FORMULA not in wrong, computes_in=precision(entry.subject, earlier)
    )
    return replace(entry, subject=subject, space=space)


def _not_judged(entry: Entry, why: str) -> Entry:
    return entry.becoming(State.NOT_JUDGED, why)


def precision(subject: Subject, earlier: Sequence[Outcome]) -> str:
    """What the candidate computes in; it can come out on any case."""
    known = {outcome.entry.subject.computes_in for outcome in earlier}
    return min({subject.computes_in, *known}, key=lambda name: PRECISIONS[name].p)


def _without(space: Space, stuck: Sequence[Layout]) -> Space:
    """The space without the dimensions in which ranks are blocked already: each such step costs a
    world of ranks, and says nothing new."""
    dp, cp = (any(getattr(lay, name) > 1 for lay in stuck) for name in ("dp_size", "cp_size"))
    return replace(space, max_dp=1 if dp else space.max_dp, max_cp=1 if cp else space.max_cp)
