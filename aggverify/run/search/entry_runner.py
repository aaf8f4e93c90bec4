"""One entry of a plan, run by itself: from its space to its outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain, islice

from msgspec import structs

from aggverify import model
from aggverify.checks import Finding
from aggverify.checks.determinism import FLAKY
from aggverify.codes.state import Incomplete, State
from aggverify.conventions.lazy_fields import NOT_KNOWN, FieldNotAvailable
from aggverify.errors import NotJudged
from aggverify.execution.deadline import NEVER, STOPS, Deadline
from aggverify.execution.executor import Executor
from aggverify.generation.constants import around
from aggverify.generation.space import Space
from aggverify.run.outcome.events import (
    CheckFinished,
    CheckStarted,
    ConfirmedFinding,
    Event,
    Measured,
    Progress,
    Seen,
    Waiting,
)
from aggverify.run.outcome.scheduling import Outcome
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import ReportedFinding, summary, why
from aggverify.run.planning.plan import PlannedCheck, looking_at_branches
from aggverify.run.search.batches import NextCases, ahead
from aggverify.run.search.dedup import raised_at
from aggverify.run.search.example_database import NOTHING, StoredExamples, findings_again
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import Evidence, triage_finding
from aggverify.steps.case import Case

Emit = Callable[[Event], None]
MOST_TOKENS = 20_000
"""Response tokens, at most, of a case on which other checks are judged as well."""
MOST = 3
"""Findings of one check at most, each with its own cause."""


def run_check(
    entry: PlannedCheck,
    executor: Executor,
    emit: Emit = lambda event: None,
    *,
    seen: RunStatistics | None = None,
    before: StoredExamples = NOTHING,
    skip: Collection[str] = (),
    part: float = 1.0,
    seconds: float = math.inf,
    deadline: Deadline = NEVER,
    following: PlannedCheck | None = None,
) -> Outcome:
    """Run the entry, or report why it is not run; with what is known when it is stopped.

    ``seen``: what earlier entries of the subject have seen; this one adds to a copy.
    ``before``: cases of earlier runs; where one still fails, nothing else is looked for.
    ``skip``: names of checks that are not judged on branches either.
    ``part``: how much of its listed and of its drawn cases is run. ``seconds``: after which there
    are no more, of the run's clock; a check that draws nothing is limited only where a person
    asks for it. ``deadline``: of the whole command. ``following``: the entry after it, of which
    the first cases start while the last ones of this entry run.
    """
    seen, check = seen or RunStatistics(), entry.check
    if entry.instead is not None or entry.space is None:
        state = entry.instead or State.NOT_CLAIMED
        left_out = summary(
            check,
            0,
            state,
            entry.why_not,
            spoiled=state is State.NOT_JUDGED,
            planned=entry.examples,
        )
        emit(CheckFinished(left_out))
        return Outcome(entry, left_out, (), seen)
    statistics = deepcopy(seen)
    emit(CheckStarted(check.name, check.title))
    if check.waits_for:
        emit(Waiting(check.waits_for))
    claim = entry.subject.claim
    run = CheckRun(
        check,
        before.judged(entry.subject),
        entry.space,
        executor,
        statistics,
        lambda: emit(Progress(check.name, executor.executed, run.phase)),
        deadline.look,
    )
    # What follows may begin with other cases where some of these are stored, or time is short.
    if following is not None and not before.stored and part == 1.0:
        assert following.space is not None
        after = CheckRun(
            following.check, following.subject, following.space, executor, RunStatistics()
        )
        run.then = lambda: after.begin_first(following.examples)
    began = executor.clock()
    if check.only is not None and claim.budget.max_time is None:
        seconds = math.inf
    reported: list[ReportedFinding] = []
    stopped = None
    try:
        _found_before(run, before, reported, emit)
        if not reported and not before.only:
            _found(run, entry, part, seconds, reported, emit, skip)
    except NotJudged as error:
        run.not_judged = str(error)
    except STOPS as stop:
        stopped = why(stop)
        found = run.found or (None if reported else next(iter(run.reported), None))
        if found is not None and all(found is not r.finding for r in reported):
            _keep(run, found, Evidence(), reported)
    if run.peak_bytes and check.only_with:
        emit(Measured(check.name, executor.clock() - began, run.peak_bytes))
    least = 0 if before.only else entry.least
    done = structs.replace(
        _summary(run, reported, stopped, least=least), planned=0 if before.only else entry.examples
    )
    emit(CheckFinished(done))
    return Outcome(replace(entry, subject=run.subject), done, tuple(reported), statistics, stopped)


def _found_before(
    run: CheckRun, before: StoredExamples, reported: list[ReportedFinding], emit: Emit
) -> None:
    """Add what the cases of earlier runs still show."""
    for finding in findings_again(run, before.stored):
        stored = stored_case(run.subject, finding)
        if before.only and stored.id in {s.id for s in before.stored}:
            _add(_reported(run, finding, Evidence()), reported, emit)
        else:
            _look_into(run, finding, reported, emit)


def _found(
    run: CheckRun,
    entry: PlannedCheck,
    part: float,
    seconds: float,
    reported: list[ReportedFinding],
    emit: Emit,
    skip: Collection[str],
) -> None:
    """Add what is found, each way in which it is wrong once."""
    check, seed = run.check, entry.subject.claim.seed
    finding = run.run(examples=entry.examples, most=entry.most_examples, part=part, seconds=seconds)
    if run.cut_short:
        cut = model.Cut(check.name, run.drawn, entry.examples)
        run.statistics.observer.cut_short.append(cut)
    if finding is None and check.looks_at_branches:
        _found_on_branches(run, reported, emit, skip)
    # A check that runs last shows a branch, which in another dimension would be the same one.
    most = 1 if check.last else MOST
    for n in range(1, most + 1):
        if finding is None:
            break
        _look_into(run, finding, reported, emit)
        finding = run.further(finding, seed=seed + n) if n < most else None


def _found_on_branches(
    run: CheckRun, reported: list[ReportedFinding], emit: Emit, skip: Collection[str]
) -> None:
    """Add what another check finds on branches, found as its own."""
    if (found := on_branches(run, skip)) is not None:
        other, finding = found
        run.found = other.smaller(finding)
        _look_into(other, run.found, reported, emit)


def on_branches(run: CheckRun, skip: Collection[str] = ()) -> tuple[CheckRun, Finding] | None:
    """Return the first other check that finds something on cases that take every branch."""
    for (other, mine), following in ahead(_on_branches(run, skip), run.then):
        run.found = other.first_failure(mine, following)
        run.cases += other.cases
        run.judged += other.judged
        run.failures += other.failures
        run.refusals += other.refusals
        if run.found is not None:
            return other, run.found
    return None


def _on_branches(run: CheckRun, skip: Collection[str]) -> Iterator[NextCases]:
    """Yield the other checks, each with cases that take every branch brought into its space."""
    subject = run.subject
    cases = list(islice(_taking_branches(run), subject.claim.budget.branches))
    for entry in looking_at_branches(subject, skip):
        assert entry.space is not None and entry.check.on_branches is not None
        space = _as_wide(entry.space, run.space)
        other = CheckRun(
            entry.check, subject, space, run.executor, run.statistics, run.progress, run.look
        )
        brought = dict.fromkeys(map(entry.check.on_branches, cases))
        mine = [case for case in brought if case in space]
        yield NextCases(other, mine[: entry.check.max_stored])


def _taking_branches(run: CheckRun) -> Iterator[Case]:
    """Yield cases that together take every branch of the reducer's code, the rarest first.

    First those that this check has run. Then some around the code's constants, for branches
    that are not seen.
    """
    taken = [*dict.fromkeys(run.examples.values())][::-1]
    neighbours = filter(None, around(run.space, run.subject.found.constants))
    for case in dict.fromkeys(chain(taken, neighbours)):
        # Huge and scaled losses are beyond the range of float16.
        if case.dtype != "float16" and case.step.num_response_tokens <= MOST_TOKENS:
            yield case


def _as_wide(space: Space, wide: Space) -> Space:
    """Return the space with the sizes of a layout that the other has, on no more ranks."""
    return replace(
        space,
        max_dp=wide.max_dp,
        max_cp=wide.max_cp,
        max_microbatches=wide.max_microbatches,
    )


def _look_into(
    run: CheckRun, finding: Finding, reported: list[ReportedFinding], emit: Emit
) -> None:
    """Add a finding with all that is known of it; when that is stopped, with what is known."""
    evidence = Evidence()
    try:
        triage_finding(run, finding, evidence, lambda seen: emit(Seen(seen)))
    except NotJudged:
        if not evidence.confirmed:
            raise
        # Only its explanation is missing.
    except STOPS:
        _keep(run, finding, evidence, reported, emit)
        raise
    finding = evidence.flaky or finding
    if finding.code == FLAKY:
        # One cause, whichever check it happened to: the others are judged on the runs that pass.
        kind = finding.fault.kind if finding.fault is not None else ""
        where = f"{kind} {raised_at(finding)}"
        if where in run.statistics.observer.flaky:
            return
        run.statistics.observer.flaky.add(where)
    _keep(run, finding, evidence, reported, emit)


def _keep(
    run: CheckRun,
    finding: Finding,
    evidence: Evidence,
    reported: list[ReportedFinding],
    emit: Emit = lambda event: None,
) -> None:
    """Add a finding; what only virtual ranks have shown is no more than a doubt."""
    if run.check.confirming is not None and not evidence.confirmed:
        run.statistics.observer.doubted.append(finding)
    else:
        _add(_reported(run, finding, evidence), reported, emit)


def _add(found: ReportedFinding, reported: list[ReportedFinding], emit: Emit) -> None:
    if not any(_repeats(found, known) for known in reported):
        reported.append(found)
        emit(ConfirmedFinding(found))


def _repeats(found: ReportedFinding, known: ReportedFinding) -> bool:
    """Whether it is the known one in another dimension: both of one root cause or of none."""
    same = (found.finding.code, found.finding.term) == (known.finding.code, known.finding.term)
    roots = [report.diagnosis.root if report.diagnosis else None for report in (found, known)]
    return same and roots[0] == roots[1] and raised_at(found.finding) == raised_at(known.finding)


def _summary(
    run: CheckRun, reported: Sequence[ReportedFinding], stopped: Incomplete | None, *, least: int
) -> model.CheckRecord:
    check, (state, reason) = run.check, _state(run, reported, stopped, least)
    proves = check.establishes if state is State.OK else None
    return summary(
        check,
        run.cases,
        state,
        reason,
        refused=_refused(run),
        established=proves(run.subject, run.cases) if proves else None,
    )


def _refused(run: CheckRun) -> str | None:
    """How often the candidate refused a case it may refuse, in its own words."""
    if not run.refusals:
        return None
    return f"{len(run.refusals)} of {run.cases} refused: {run.refusals[-1]}"


def _state(
    run: CheckRun, reported: Sequence[ReportedFinding], stopped: Incomplete | None, least: int
) -> tuple[State, str | None]:
    """``least``: cases that must have come to a result before it passes, if there are as many."""
    if reported:
        return (State.FAILED if any(r.fails for r in reported) else State.HAZARD), None
    if stopped is not None:
        return State.NOT_JUDGED, str(stopped)
    if run.talks:
        return State.LEFT_OUT, "its ranks talk to others on some of these steps"
    if run.not_judged is not None:
        return State.NOT_JUDGED, run.not_judged
    if not run.complete and run.check.only is not None:
        return State.NOT_JUDGED, "stopped by --max-time: not all of its cases"
    if not run.cases:
        return State.NOT_JUDGED, "no case was executed"
    if len(run.refusals) >= run.cases:
        return State.REFUSED, None
    if not run.judged:
        errors = [failure.error for failure in run.failures]
        if errors and all(e is not None and e.breach == FieldNotAvailable.name for e in errors):
            return State.LEFT_OUT, f"it asks for {NOT_KNOWN}"
        reason = run.failures[-1].message if run.failures else "none was finite"
        return State.NOT_JUDGED, f"no case came to a result: {reason}"
    if run.judged < min(least, run.cases):
        some = f"{run.judged} of {run.cases} cases came to a result"
        return State.NOT_JUDGED, f"only {some}, and {least} are the least that a check passes on"
    return State.OK, None


def _reported(run: CheckRun, finding: Finding, found: Evidence) -> ReportedFinding:
    stored = stored_case(run.subject, finding)
    return ReportedFinding(
        stored,
        finding,
        found.diagnosis,
        found.confirmed,
        found.relevance,
        suspects=found.suspects,
    )
