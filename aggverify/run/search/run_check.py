"""One entry of a plan, run by itself: from its space to its outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from aggverify.checks import Finding
from aggverify.codes.state import State
from aggverify.execution.laboratory import Laboratory
from aggverify.run.outcome.consequences import Outcome
from aggverify.run.outcome.events import CheckFinished, CheckStarted, Event, Found, Progress
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.tally import Tally
from aggverify.run.outcome.verdict import CheckSummary, ReportedFinding
from aggverify.run.planning.plan import Entry
from aggverify.run.search.check_run import CheckRun
from aggverify.run.search.evidence import gathered

Emit = Callable[[Event], None]


def run_check(
    entry: Entry,
    laboratory: Laboratory,
    emit: Emit = lambda event: None,
    *,
    seen: Tally | None = None,
    seconds: float = math.inf,
) -> Outcome:
    """Run the entry, or say why it is not run.

    ``seen``: what earlier entries of the subject have seen, and is not looked for again.
    ``seconds``: for drawing; a check that runs all of its own cases has them only if asked for.
    """
    tally = Tally() if seen is None else deepcopy(seen)
    check = entry.check
    if entry.instead is not None or entry.space is None:
        state = entry.instead or State.NOT_CLAIMED
        summary = CheckSummary(check.name, check.title, check.tests, 0, state, entry.why_not)
        emit(CheckFinished(summary))
        return Outcome(entry, summary, None, tally)
    emit(CheckStarted(check.name, check.title))
    claim = entry.subject.claim
    run = CheckRun(
        check,
        entry.subject,
        entry.space,
        laboratory,
        tally,
        lambda: emit(Progress(check.name, laboratory.executed)),
    )
    unlimited = check.only is not None and claim.budget.max_time is None
    deadline = math.inf if unlimited else time.monotonic() + seconds
    finding = run.run(examples=entry.examples, seed=claim.seed, deadline=deadline)
    if finding is None and check.only is None and time.monotonic() > deadline:
        tally.sights.cut_short.append(check.name)
    reported = None if finding is None else _reported(run, finding)
    if reported is not None:
        emit(Found(reported))
    summary = _summary(run, reported)
    emit(CheckFinished(summary))
    return Outcome(replace(entry, subject=run.subject), summary, reported, tally)


def _summary(run: CheckRun, reported: ReportedFinding | None) -> CheckSummary:
    check, (state, reason) = run.check, _state(run, reported)
    proves = check.establishes if state is State.OK else None
    return CheckSummary(
        check.name,
        check.title,
        check.tests,
        run.cases,
        state,
        reason,
        proves(run.subject, run.cases) if proves else None,
        run.refused,
    )


def _state(run: CheckRun, reported: ReportedFinding | None) -> tuple[State, str | None]:
    if reported is not None:
        return (State.FAILED if reported.fails else State.HAZARD), None
    if not run.complete:
        return State.NOT_JUDGED, "stopped by --max-time: not all of its cases"
    if not run.cases:
        return State.NOT_JUDGED, "no case was executed"
    if not run.judged:
        return State.NOT_JUDGED, f"no case came to a result: {run.in_vain}"
    return State.OK, None


def _reported(run: CheckRun, finding: Finding) -> ReportedFinding:
    """The finding confirmed in fresh ranks and explained."""
    found = gathered(run, finding)
    stored = stored_case(run.subject, finding)
    return ReportedFinding(stored, finding, found.diagnosis, found.confirmed, found.relevance)
