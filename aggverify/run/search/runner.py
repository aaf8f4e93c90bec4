"""One check on one subject: stored cases, then drawn ones, until one fails; that one made small.

And a few more, for what that one may hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from aggverify.checks import Check, Finding
from aggverify.checks.judging import has_result
from aggverify.checks.refusal import refusal
from aggverify.errors import NotJudged
from aggverify.execution.budget import MIN_EXAMPLES
from aggverify.execution.deadline import OutOfTime
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.kept import Submitted
from aggverify.execution.run_spec import RunSpec, as_run_spec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space, folded, sizes
from aggverify.run.outcome.events import Phase
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.first_cases import first_cases
from aggverify.run.search.batches import FIRST_BATCH, doubling, nothing
from aggverify.run.search.dedup import same_cause, same_failure
from aggverify.run.search.drawing import FIRST_DRAWN, draws, search, stream_of
from aggverify.run.search.pipeline import Pipeline, Running, first_finding
from aggverify.run.search.rounding import LOW, explained_by_rounding, rounds
from aggverify.run.search.shrink import shrink
from aggverify.steps.case import Case
from aggverify.steps.layouts import dimensions
from aggverify.world import Fault

LOOPS = 2
"""Smaller cases, at most, that do not come to an end: each takes all of its time limit."""
FURTHER = 24
"""Cases drawn at most after a finding, without the dimensions of its layout."""


@dataclass(slots=True)
class CheckRun:
    """Runs one check; ``progress`` is called after every few executed cases."""

    check: Check
    subject: Subject
    space: Space
    executor: Executor
    statistics: RunStatistics
    progress: Callable[[], None] = lambda: None
    look: Callable[[], None] = lambda: None
    """Raises OutOfTime once nothing new is to be looked for."""
    then: Callable[[], None] = nothing
    """Starts what comes after this check, while its last cases run."""
    phase: Phase = Phase.STREAM
    found: Finding | None = None
    """The smallest case so far that shows it."""
    cases: int = 0
    drawn: int = 0
    """Of these, how many were drawn in the search."""
    judged: int = 0
    """Of all, how many came to a result, a refusal or a finding: the rest is no evidence."""
    complete: bool = True
    """False when time ran out before the cases that are not drawn did."""
    cut_short: bool = False
    """Whether time ran out before so many cases were drawn as were asked for."""
    not_judged: str | None = None
    """What kept it from being judged that is not the candidate's doing."""
    talks: bool = False
    """Whether virtual ranks issued collectives: then it is not applicable."""
    refusals: list[str] = field(default_factory=list)
    """With what words the candidate refused a case, where it may."""
    executions: int = 0
    peak_bytes: int = 0
    """What a rank held at most, where a step was large."""
    failures: list[Fault] = field(default_factory=list)
    """Why executions came to no result."""
    known: list[Finding] = field(default_factory=list)
    """What has been found on a smallest case, and is not found again."""
    reported: list[Finding] = field(default_factory=list)
    """Every finding on any case so far, known ones and those on the way to a smaller one too."""
    loops: int = 0
    """How many cases that were tried as smaller ones did not come to an end."""
    _left: Iterator[Case] | None = None
    """Cases that are not drawn and have not been run."""
    examples: dict[int, Case] = field(default_factory=dict)
    """Of each outcome of a condition the first case."""
    _rounds: bool | None = None
    """Whether small deviations are float32 arithmetic, once that has been asked."""

    def clock(self) -> float:
        """Return seconds for budgets: wall time only where a person has limited it."""
        time_given = self.subject.claim.budget.max_time is not None
        return self.executor.clock() if time_given else self.executor.budget_clock()

    def run(
        self, *, examples: int, most: int = 0, part: float = 1.0, seconds: float = math.inf
    ) -> Finding | None:
        """Return the finding on the smallest case that shows it, or None when every case passes.

        ``examples``: so many are drawn, or up to ``most`` where fewer than MIN_EXAMPLES would be
        judged. ``part``: how much of listed and of drawn cases is run. ``seconds``: of
        :meth:`clock`, after which there are no more, but MIN_EXAMPLES are judged.
        Raises OutOfTime where the whole command has none left and nothing was found.
        """
        deadline = self.clock() + seconds
        if self.check.only is not None:
            self.found = self.stored_failure(deadline, then=self.then)
            return self.found if self.check.confirming is None else self._made_small()
        self.found = self.stored_failure(
            deadline,
            part=part,
            least=MIN_EXAMPLES,
            then=lambda: self.begin(self._first_drawn(examples)),
        )
        before, least = self.cases, MIN_EXAMPLES - self.judged
        if self.found is None:
            self.found = search(
                stream_of(self.subject).cases(self.check.draws(self.space), examples),
                self._submit_in_time,
                max_examples=min(max(examples, most), max(least, math.ceil(part * examples))),
                deadline=deadline,
                least=least,
                clock=self.clock,
                then=nothing if self.check.looks_at_branches else self.then,
            )
        self.drawn = self.cases - before
        late = not self.complete or part < 1 or self.clock() > deadline
        self.cut_short = self.found is None and late and self.drawn < examples
        return self._made_small()

    def _made_small(self) -> Finding | None:
        if self.found is None:
            return None
        self.phase = Phase.CONFIRM
        return self.smaller(self.found)

    def smaller(self, found: Finding) -> Finding:
        """Return the same finding on the smallest case that shows it, as far as there is time."""
        self.found = found
        with suppress(OutOfTime):  # then the smallest so far is small enough
            self.found = shrink(found, self._judge_smaller, self.space)
        return self.found

    def _submit_in_time(self, cases: Sequence[Case]) -> Running:
        self.look()
        return self.submit(cases)

    def _judge_smaller(self, cases: Sequence[Case]) -> list[Finding | None]:
        """Judge cases that may be smaller than the one found; the smallest is kept as it comes."""
        self.look()
        if self.loops >= LOOPS:
            raise OutOfTime
        judged, known = self.findings(cases), self.found
        faults = (f.fault for f in judged if f is not None)
        self.loops += sum(fault is not None and fault.kind == "runaway" for fault in faults)
        same = [f for f in judged if f is not None and known is not None and same_failure(known, f)]
        self.found = min([*same, *filter(None, [known])], key=lambda f: f.case.size, default=None)
        return judged

    def further(self, known: Finding, *, seed: int) -> Finding | None:
        """Return the next finding of another cause after the known one, or None.

        Likewise on its smallest case. It is looked for among what was seen on the way, stored cases
        that have not been run, and a few drawn without the known one's dimensions. ``seed``:
        another one than before.

        There is no deadline: the same ones are found however long the known one took to explain.
        """
        self.known.append(known)
        self.found = None
        if self.check.only is not None:
            return None
        # Of the losses the known one would be found there again; another term may be wrong there.
        involved = dimensions(known.case.layout) if known.term is None else frozenset()
        elsewhere = folded(self.space, involved)
        can_draw = bool(sizes(elsewhere)) and (bool(involved) or known.term is not None)
        if known.traits.costs_a_world:
            if not can_draw:
                return None
            self.space = elsewhere
        reported = (f for f in self.reported if f.case in self.space and not self._is_known(f))
        self.found = next(reported, None) or self.stored_failure()
        if self.found is None and can_draw:
            self.phase = Phase.STREAM
            self.found = search(
                draws(self.check.draws(elsewhere), seed),
                self._submit_in_time,
                max_examples=FURTHER,
            )
        return self._made_small()

    def _is_known(self, finding: Finding) -> bool:
        return any(same_cause(known, finding) for known in self.known)

    def judge(self, case: Case) -> Finding | None:
        """Execute the variants of one case and judge them."""
        return self.findings([case])[0]

    def judge_again(self, case: Case) -> Finding | None:
        """Execute what confirms a finding on that case, and judge it."""
        if self.check.confirming is None:
            return self.judge(case)
        again = self.executor.run(self.subject, self.confirming(case))
        return self.check.judge(self.subject, again)

    def confirming(self, case: Case) -> tuple[Case | RunSpec, ...]:
        """Return what is run to confirm a finding on that case."""
        return (self.check.confirming or self.check.variants)(case)

    def findings(self, cases: Sequence[Case]) -> list[Finding | None]:
        """Execute the variants of all these cases and judge them, one finding or None each."""
        return self.submit(cases).findings()

    def first_failure(
        self, cases: Sequence[Case], then: Callable[[], None] = nothing
    ) -> Finding | None:
        """Return the finding on the smallest of these cases that fail.

        ``then`` is called while they run, and may start what comes next.
        """
        running = self.submit(cases)
        if not running.stumbles():
            then()
        found = filter(None, running.findings())
        self.found = min(found, key=lambda f: f.case.size, default=None)
        return self.found

    def submit(self, cases: Sequence[Case]) -> Running:
        """Start these cases' variants."""
        no_control = self._has_no_control()
        variants = self._variants(cases)

        def judge_all(executions: Sequence[Execution]) -> list[Finding | None]:
            rest = iter(executions)
            groups = ([next(rest) for _ in group] for group in variants)
            found = [self._judged(*pair, no_control) for pair in zip(cases, groups, strict=True)]
            self.cases += len(cases)
            self.progress()
            return found

        return Running(self._started(variants), judge_all)

    def begin_first(self, examples: int) -> None:
        """Start the cases that it will begin with, before it has its turn."""
        if not self.check.waits_for:
            first = list(islice(self._listed(), FIRST_BATCH))
            self.begin(first or self._first_drawn(examples))

    def begin(self, cases: Sequence[Case]) -> None:
        """Start cases that will be submitted next."""
        variants = self._variants(cases)
        with suppress(NotJudged):  # raised again when they are
            self.executor.begin_ahead(self.subject, _flat(variants), self._started(variants))

    def _first_drawn(self, examples: int) -> list[Case]:
        drawn = stream_of(self.subject).cases(self.check.draws(self.space), examples)
        return list(islice(drawn, min(FIRST_DRAWN, examples)))

    def _has_no_control(self) -> bool:
        return self.check.control_first and self.subject.has_oracle

    def _variants(self, cases: Sequence[Case]) -> list[Sequence[RunSpec]]:
        """Return what is run of each case."""
        left_out = 1 if self._has_no_control() else 0
        groups = (map(as_run_spec, self.check.variants(case)[left_out:]) for case in cases)
        noted = self.check.looks_at_branches
        return [[replace(t, noted=True) if noted else t for t in group] for group in groups]

    def _started(self, variants: Sequence[Sequence[RunSpec]]) -> Submitted:
        wanted = _flat(variants)
        if (begun := self.executor.begun(self.subject, wanted)) is not None:
            return begun
        # Equal variants are compared with each other: a kept result must not stand for them all.
        twice = any(len(set(group)) < len(group) for group in variants)
        start = self.executor.submit if twice else self.executor.shared
        return start(self.subject, wanted)

    def _judged(self, case: Case, mine: list[Execution], no_control: bool) -> Finding | None:
        self.statistics.observer.add(self.subject, [e.case for e in mine if not e.virtual])
        self.statistics.observer.extent.add_virtual([e.case for e in mine if e.virtual])
        self.talks |= any(e.communicates for e in mine)
        self.statistics.observer.covered.add(mine)
        if self.check.looks_at_branches:
            for each in mine:
                self.examples |= dict.fromkeys(each.outcomes - self.examples.keys(), each.case)
        self.statistics.observer.altered.update(name for e in mine for name in e.altered)
        self.executions += len(mine)
        self.failures += [e.failure for e in mine if e.failure is not None]
        self.peak_bytes = max(self.peak_bytes, *(e.peak_bytes for e in mine))
        self.statistics.pace.add(mine)
        finding = self.check.judge(self.subject, mine)
        last, concerned = mine[-1], self.check.may_refuse
        ranks = None if concerned is None else concerned(last.case)
        by_accident = self.subject.compares is not None
        refused = None if ranks is None else refusal(last, ranks, by_accident=by_accident)
        if refused is not None:
            self.refusals.append(refused)
        if finding is not None and no_control and self.subject.rows is None:
            # Now the control decides whose fault it is.
            mine = [*self.executor.run(self.subject, self.check.variants(case)[:1]), *mine]
            finding = self.check.judge(self.subject, mine)
        if finding is not None and finding.accumulated:
            self.statistics.needs(self.subject, finding)
            finding = None
        if finding is not None and self._is_rounding(finding, mine):
            finding = None
        self.judged += finding is not None or refused is not None or self._has_results(mine)
        if finding is None:
            self.statistics.add(self.subject, mine, scalars=self.check.judges_scalar)
            return None
        self.reported.append(finding)
        return None if self._is_known(finding) else finding

    def _has_results(self, mine: Sequence[Execution]) -> bool:
        """Whether the variants of a case allow a judgement."""
        first, *others = map(has_result, mine)
        return first and (any(others) if self.check.one_will_do else all(others))

    def _is_rounding(self, finding: Finding, executions: Sequence[Execution]) -> bool:
        """Whether the candidate turns out to compute in float32, which is all there is to it."""
        if not explained_by_rounding(self.check, self.subject, finding, executions):
            return False
        if self._rounds is None:
            self._rounds = rounds(self.check, self.subject, self.space, self.executor)
        if self._rounds:
            self.subject = self.subject.knowing(computes_in=LOW)
        return self._rounds

    def stored_cases(self) -> list[Case]:
        """Return what is known to be hard, brought into its space.

        Nothing where it has its own cases.
        """
        return [] if self.check.only else first_cases(self.check, self.subject, self.space)

    def stored_failure(
        self,
        deadline: float = math.inf,
        *,
        part: float = 1.0,
        least: int = 0,
        then: Callable[[], None] = nothing,
    ) -> Finding | None:
        """Return the first finding among the cases that are not drawn and have not been run.

        ``part``: how much of them is run; ``least``: how many are judged in any case. ``then`` is
        called while the last ones run.
        """
        pipeline = Pipeline(self._submit_in_time)
        if self._left is None:
            # The space may become smaller before all of them are run.
            self._left = self._listed()
        self.phase = Phase.STREAM if self.check.only is None else Phase.SPECIAL
        most = None
        if part < 1:
            whole = list(self._left)
            self._put_back(whole)
            most = max(least, math.ceil(part * len(whole)))
        for batch in doubling(islice(self._left, most)):
            judged = pipeline.push(batch)
            if (found := first_finding(judged)) is not None:
                self.found = found  # should time end here
                if pipeline.is_empty or found.fault is not None:
                    # Each case under way may cost seconds too, in ranks that are replaced anyway.
                    self._put_back(batch)
                else:
                    # Judged as well, so that no result depends on how far these have come.
                    pipeline.rest(judged)
                return found
            # The batch is under way, and judged at the end.
            if self.judged + len(batch) >= least and self.clock() >= deadline:
                break
        if (more := next(self._left, None)) is not None:
            self._put_back([more])
            self.complete = False
        return first_finding(pipeline.drain(then))

    def _listed(self) -> Iterator[Case]:
        only = self.check.only
        cases = self.stored_cases() if only is None else only(self.subject)
        return (case for case in cases if case in self.space)

    def _put_back(self, cases: Sequence[Case]) -> None:
        """Have these run first where cases are asked for again, as far as they are in the space."""
        assert self._left is not None
        rest = chain(cases, self._left)
        self._left = (case for case in rest if case in self.space)


def _flat(variants: Sequence[Sequence[RunSpec]]) -> list[RunSpec]:
    return list(chain.from_iterable(variants))
