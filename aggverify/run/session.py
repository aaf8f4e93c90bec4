"""One ``check`` command from target to verdicts: subjects, a plan for each, a fold over it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import structs

from aggverify import model
from aggverify.checks import CHECKS, Check, Finding, installed
from aggverify.codes.state import Incomplete, State
from aggverify.errors import InputError, NotJudged, UnknownVersion, unknown
from aggverify.execution.deadline import NEVER, Deadline, OutOfTime
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import REAL
from aggverify.execution.subject import Subject
from aggverify.run.ahead import draw_ahead
from aggverify.run.opening import loaded
from aggverify.run.outcome.events import (
    ConfirmedFinding,
    Event,
    Finished,
    Phase,
    Progress,
    Seen,
    SubjectChosen,
    Waiting,
)
from aggverify.run.outcome.scheduling import Outcome, precision, prune
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import (
    ReportedFinding,
    RunVerdict,
    covered,
    summary,
    together,
    why,
)
from aggverify.run.planning.amount import Amount
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.plan import Plan, PlannedCheck, plan
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.run.search.example_database import NOTHING, StoredExamples
from aggverify.run.search.fail_fast import first_failure
from aggverify.run.search.smoke import CHECK, WHY_NOT, smoke_test
from aggverify.world import Pool, Printed

Emit = Callable[[Event], None]
PRINTED = "the ranks print: aggverify replay CASE shows what rank 0 printed"
BEGAN = "the ranks print, which is captured: rank 0 began with {!r}"
"""Where there is no case to replay."""
ENDED = "-x: stopped at the finding of another check"


def verify(
    request: Request,
    emit: Emit,
    *,
    pool: Pool,
    deadline: Deadline = NEVER,
    known: Sequence[model.Waiver] = (),
) -> tuple[RunVerdict, ...]:
    """Verify every mode asked for; raises AggverifyError when nothing can be judged.

    ``known``: what is accepted in addition to what the request accepts.

    The deadline ends it with what is known by then, and before that is anything at all it raises
    TooLate. Ctrl-C is raised on; the verdicts known by then are emitted.
    """
    verdicts: list[RunVerdict] = []
    waivers = (*request.waivers, *known)
    checks, skip, narrowed = chosen(request.only, request.skip)

    def ends(found: Sequence[ReportedFinding]) -> bool:
        """Whether one of these is the failure at which the command ends."""
        left = (r for r in found if not any(covered(w, [r])[0] for w in waivers))
        return request.exit_first and any(r.fails for r in left)

    draw_ahead(request, checks, is_enough=lambda: pool.ready)
    with loaded(request, pool) as (found, executor):

        def waived(event: Event) -> None:
            """Also a verdict of what was known when it was stopped has its waivers."""
            made = event.verdict if isinstance(event, Finished) else None
            emit(event if made is None else Finished(made.accepting(waivers)))

        for n, each in enumerate(found):
            subject = each.noting(*narrowed)
            try:
                verdict = examine(
                    subject,
                    executor,
                    waived,
                    deadline=deadline,
                    part=1 / (len(found) - n),
                    stopped=verdicts[-1].incomplete if verdicts else None,
                    checks=checks,
                    skip=skip,
                    ends=ends,
                )
            except KeyboardInterrupt:
                for missed in found[n + 1 :]:
                    left, why = missed.noting(*narrowed), Incomplete.INTERRUPTED
                    waived(Finished(examine(left, executor, checks=checks, stopped=why)))
                raise
            verdict = verdict.accepting(waivers)
            emit(Finished(verdict))
            verdicts.append(verdict)
            if ends(verdict.reports):
                break
    return tuple(verdicts)


def chosen(
    only: Iterable[str], skip: Iterable[str]
) -> tuple[Sequence[Check], Collection[str], list[str]]:
    """Return the checks that are run, names of those to skip, and a note where not all are run.

    Raises InputError for a name that no check has, or where none is left.
    """
    every, names = installed(), [c.name for c in installed()]
    wanted, unwanted = (
        [name.strip() for text in texts for name in text.split(",") if name.strip()]
        for texts in (only, skip)
    )
    for name in (*wanted, *unwanted):
        if name not in names:
            raise unknown("check", name, names)
    left = [c for c in every if c.name not in unwanted and (not wanted or c.name in wanted)]
    if not left:
        raise InputError("--only and --skip leave no check")
    note = f"only {len(left)} of {len(every)} checks were run (--only, --skip)"
    return left, unwanted, [note] * (len(left) < len(every))


def plans(request: Request, *, pool: Pool) -> tuple[Plan, ...]:
    """Return what :func:`verify` would run, one plan a subject.

    Modes are found out, nothing is judged.
    """
    with loaded(request, pool) as (found, executor):
        made = []
        for subject in found:
            executor.begin()
            made.append(plan(prepared(subject, executor)))
        return tuple(made)


def examine(
    subject: Subject,
    executor: Executor,
    emit: Emit = lambda event: None,
    *,
    checks: Iterable[Check] = CHECKS,
    skip: Collection[str] = (),
    before: StoredExamples = NOTHING,
    deadline: Deadline = NEVER,
    part: float = 1.0,
    stopped: Incomplete | None = None,
    ends: Callable[[Sequence[ReportedFinding]], bool] = lambda found: False,
) -> RunVerdict:
    """Every check on one subject whose candidate is loaded already: a fold over its plan.

    ``skip``: names of checks that are not judged on branches either. ``before``: cases of earlier
    runs. ``part``: of the time left until the deadline. ``stopped``:
    why nothing is to be run. ``ends``: whether findings of a check are such that no other is run.

    What is raised on the way, Ctrl-C too, is raised on once the verdict known by then is emitted;
    at the deadline it is returned.
    """
    if subject.claim.compiled:
        emit(Waiting("torch.compile compiles the first steps, in every rank"))
    executor.begin()
    work = _Work(subject, executor, tuple(checks), skip, before)
    try:
        if stopped is None and not work.fails_at_once(emit):
            work.prepare()
            emit(SubjectChosen(work.subject, len(work.entries)))
            work.look(emit, deadline)
            stopped = work.fold(emit, deadline, part, ends)
    except OutOfTime:
        stopped = Incomplete.OUT_OF_TIME
    except UnknownVersion as error:
        work.unknown = str(error)
    except (KeyboardInterrupt, Exception) as error:
        emit(Finished(work.verdict(why(error))))
        raise
    return work.verdict(stopped)


class _Work:
    """What is known of a subject so far, whenever it is asked."""

    def __init__(
        self,
        subject: Subject,
        executor: Executor,
        checks: tuple[Check, ...],
        skip: Collection[str],
        before: StoredExamples,
    ) -> None:
        self.subject, self._executor = subject, executor
        self.entries = plan(subject, checks).entries
        self._checks, self._skip = checks, skip
        self._outcomes: list[Outcome] = []
        self._first: ReportedFinding | None = None
        self._before = before
        self._seen: Finding | None = None
        self._ended = False
        self.unknown: str | None = None
        """Why nothing can be judged, where its version is not known to the convention."""
        self._statistics = RunStatistics()
        self._executed, self._worlds = executor.executed, dict(executor.worlds)

    def fails_at_once(self, emit: Emit) -> bool:
        """Whether the reducer does not get through the simplest step."""
        emit(Progress(CHECK, self._executor.executed, Phase.SMOKE))
        self._first = smoke_test(self.subject, self._executor)
        if self._first is not None:
            emit(ConfirmedFinding(self._first))
        return self._first is not None

    def look(self, emit: Emit, deadline: Deadline) -> None:
        """Report what a few cases show already."""
        if len(self.entries) < 2 or self._before.only:
            return
        try:
            seen = first_failure(self.entries, self._executor, self._statistics, deadline)
        except NotJudged:
            return  # the check that it happens to reports it
        if seen is not None:
            self._seen = seen
            emit(Seen(seen))

    def prepare(self) -> None:
        """Find out what must be known before the checks can be planned."""
        while True:
            try:
                self.subject = prepared(self.subject, self._executor)
            except NotJudged:
                if self._in_less_room():
                    continue
                raise
            self.entries = plan(self.subject, self._checks).entries
            return

    def _in_less_room(self) -> bool:
        """Whether a world had no room, so that from now on there are smaller ones only."""
        less = self._executor.in_less_room(self.subject)
        if less is None:
            return False
        self.subject, self.entries = less, plan(less, self._checks).entries
        return True

    def fold(
        self,
        emit: Emit,
        deadline: Deadline,
        share: float,
        is_enough: Callable[[Sequence[ReportedFinding]], bool],
    ) -> Incomplete | None:
        """Run the entries, as much of each as there is time for; return what ended one early."""
        executor, outcomes = self._executor, self._outcomes
        budget = self.subject.claim.budget
        clock = executor.budget_clock if budget.max_time is None else executor.clock
        ends = clock() + min(budget.seconds, share * deadline.left)
        amount = Amount(asked=budget.max_time is not None)
        while left_over := self.entries[len(outcomes) :]:
            deadline.look()
            began, before = clock(), executor.executed
            part, seconds = amount.part(left_over, min(ends - began, deadline.left))
            left = prune(left_over[0], outcomes)
            rest = (prune(entry, outcomes) for entry in left_over[1:])
            coming = [e for e in rest if e.instead is None and e.space is not None]
            # Not before: most wrong reducers are known by then, and need no other ranks.
            half_way = 2 * len(outcomes) >= len(self.entries)
            if half_way and any(e.check.elsewhere == REAL for e in coming):
                executor.begin_real(self.subject)
            outcome = run_check(
                left,
                executor,
                emit,
                seen=self._statistics,
                before=self._before,
                skip=self._skip,
                part=part,
                seconds=seconds,
                deadline=deadline,
                following=next(iter(coming), None),
            )
            spoiled = outcome.summary.state is State.NOT_JUDGED and outcome.stopped is None
            if spoiled and self._in_less_room():
                continue  # the same entry, in smaller worlds
            outcomes.append(outcome)
            if not outcome.findings:
                amount.add(clock() - began, executor.executed - before)
            self._statistics = outcome.statistics
            if outcome.stopped is Incomplete.INTERRUPTED:
                raise KeyboardInterrupt
            self._ended = is_enough(outcome.findings)
            if self._ended:
                break
        return next(filter(None, (outcome.stopped for outcome in outcomes)), None)

    def _seen_only(self) -> ReportedFinding | None:
        """Return what a first look reported, if its check came to no result, nor did any other."""
        if self._seen is None:
            return None
        mine = [o for o in self._outcomes if o.summary.name == self._seen.check]
        over = [o for o in mine if o.findings or not o.stopped]
        anything = any(o.findings for o in self._outcomes)
        if any(anything or o.summary.state is not State.NOT_JUDGED for o in over):
            return None
        return ReportedFinding(stored_case(self.subject, self._seen), self._seen, None, True)

    def verdict(self, incomplete: Incomplete | None = None) -> RunVerdict:
        """Of the outcomes so far; what was not reached is not judged, for that reason."""
        executor, outcomes = self._executor, self._outcomes
        worlds = sorted(executor.worlds.items())
        why_not = self.unknown or (None if incomplete is None else str(incomplete))
        why_not = ENDED if self._ended else why_not
        missed = [_missed(e, self._first, why_not) for e in self.entries[len(outcomes) :]]
        summaries = [*(o.summary for o in outcomes), *missed]
        first = () if self._first is None else (self._first,)
        if (seen := self._seen_only()) is not None:
            first, name = (seen,), seen.finding.check
            summaries = [_failed(s) if s.name == name else s for s in summaries]
        self._statistics.observer.outlived = executor.outlived
        reports = (*first, *together([r for outcome in outcomes for r in outcome.findings]))
        subject = self.subject.noting(*_printed(executor.printed, replayed=bool(reports)))
        return RunVerdict(
            subject=subject.knowing(computes_in=precision(subject, outcomes)),
            reports=reports,
            checks=tuple(summaries),
            executed=executor.executed - self._executed,
            worlds=tuple((w, n - self._worlds.get(w, 0)) for w, n in worlds),
            margins=self._statistics.margins(subject),
            seed=subject.claim.seed,
            weaknesses=self._statistics.observer.weaknesses(subject),
            cuts=tuple(self._statistics.observer.cut_short),
            tried=self._statistics.observer.extent.tried,
            covered=self._statistics.observer.covered,
            call_milliseconds=self._statistics.pace.milliseconds,
            incomplete=incomplete,
        )


def _printed(what: Printed, *, replayed: bool) -> Iterator[str]:
    """Yield the note of what ranks print: where to see it, or, without a case, its first line."""
    if what and replayed:
        yield PRINTED
    elif what:
        yield BEGAN.format(next(filter(str.strip, what.lines), "")[:60])


def _failed(done: model.CheckRecord) -> model.CheckRecord:
    """Of a check whose finding was seen before it had its turn."""
    return structs.replace(done, cases=max(done.cases, 1), state=State.FAILED, reason=None)


def _missed(
    entry: PlannedCheck, first: ReportedFinding | None, why_not: str | None
) -> model.CheckRecord:
    """Return the summary of an entry that was never reached."""
    check, state, reason = entry.check, entry.instead, entry.why_not
    if first is not None and check.name == first.finding.check:
        return summary(check, 1, State.FAILED, planned=entry.examples)
    if state is None:
        state, reason = State.NOT_JUDGED, WHY_NOT if first is not None else why_not
    spoiled = state is State.NOT_JUDGED and (first is not None or why_not == ENDED)
    return summary(check, 0, state, reason, spoiled=spoiled, planned=entry.examples)
