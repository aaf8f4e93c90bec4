"""Send cases to the ranks: which are run where, together, again, or not at all."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from aggverify.engines import closing
from aggverify.errors import NotJudged, UnknownVersion
from aggverify.execution import decode_replies, limits
from aggverify.execution.assigned import assignment
from aggverify.execution.budget import MAX_WORLD
from aggverify.execution.claim import NONLINEAR
from aggverify.execution.executed import Execution, executed, reduced
from aggverify.execution.kept import KeptExecutions, Submitted
from aggverify.execution.retry_policy import RetryPolicy, doubtful
from aggverify.execution.run_spec import (
    AGAINST,
    APART,
    COMPILED,
    LAUNCHED,
    REAL,
    RunSpec,
    Where,
    as_run_spec,
)
from aggverify.execution.subject import Subject
from aggverify.execution.trace_sampling import TraceSampling
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.trainer.assignment import GROUPS
from aggverify.trainer.blame import NotKnown
from aggverify.world import Fault, Job, PoolError, TemplateFailure, resource_headroom

if TYPE_CHECKING:
    from aggverify.world import Pending, Printed, Template


NOTHING: Mapping[str, str] = {}
_NOTES = count(1)
"""A new number for each subject, as ranks outlive one and note the lines of each apart."""
_LOOK_EVERY = 0.5
"""Seconds between two looks at how loaded the machine is."""
_NO_ROOM = "the machine has no room for what the reducer asks of it"
SIZES = (8, 6, 4, 3, 2, 1)
"""Of worlds that cases are made for, the largest first."""


class Executor:
    """Runs cases of one subject on the worlds of one template process.

    ``other``: where run specs on the subject's other path are run.
    """

    def __init__(self, template: Template, other: Executor | None = None) -> None:
        self._template = template
        self._others: dict[Where, Executor] = {} if other is None else {AGAINST: other}
        self._cpu_seconds: float | None = None
        self._slowest = 0.0
        self._looked, self._contention, self._began = 0.0, 1.0, math.nan
        self._retry_policy = RetryPolicy()
        self._unfit: dict[int, str] = {}
        self._note, self._trace_sampling = next(_NOTES), TraceSampling()
        self._judged, self._diagnosed = KeptExecutions(), KeptExecutions()
        self._ahead: tuple[Subject, Sequence[RunSpec], Submitted] | None = None
        self.executed = 0
        self.worlds: dict[int, int] = {}

    @property
    def most(self) -> int:
        """Ranks that a world may have."""
        return self._template.most

    @property
    def printed(self) -> Printed:
        """What the first rank of each world has printed of this subject."""
        return self._template.printed

    def clock(self) -> float:
        """Seconds of which none are spent on ranks that start, import or prepare."""
        loading = (each._template.loading for each in (self, *self._others.values()))
        return time.monotonic() - sum(loading)

    def budget_clock(self) -> float:
        """Return seconds without those that processes wait for a processor.

        Those of other processes are left out as well: how much is tried does not depend on what
        else runs. May step back a little, as load grows.
        """
        now = time.monotonic()
        if math.isnan(self._began):
            self._began = self.clock()
        if now >= self._looked + _LOOK_EVERY:
            self._looked, self._contention = now, max(1.0, self._template.contention)
        return (self.clock() - self._began) / self._contention

    def begin(self) -> None:
        """Reset the time-out back-off and the lines that have run, before another subject."""
        self._note, self._trace_sampling, self._slowest = next(_NOTES), TraceSampling(), 0.0
        self._judged.clear()
        self._diagnosed.clear()
        self._ahead = None
        self._unfit.clear()
        self.printed.clear()
        self.calm()
        for other in self._others.values():
            other.begin()

    def calm(self) -> None:
        """Forget what ran away or was ended so far; more time for each case stays granted."""
        self._retry_policy = RetryPolicy(self._retry_policy.seconds)
        self._template.calm()
        for other in self._others.values():
            other.calm()

    def largest(self, wanted: int) -> tuple[int, str]:
        """Return the largest world up to ``wanted`` that there is room for, and why no larger one.

        Raises NotJudged where there is none.
        """
        most, why = self._template.most, ""
        if wanted > most:
            why = self._template.why_no_more
        for size in (n for n in SIZES if n <= min(wanted, most)):
            dp_sizes = [n for n in range(1, size + 1) if size % n == 0]
            grids = [Layout(tuple(((d,),) for d in range(n)), size // n) for n in dp_sizes]
            layouts = [grid.to_json() for grid in grids]
            [outcome] = self._template.run([Job(size, {GROUPS: layouts})])
            if not (isinstance(outcome, Fault) and outcome.is_internal):
                return size, why
            why = why or resource_headroom.without(f"{size} ranks", outcome.message)
        raise NotJudged(f"ranks cannot be run here: {why}")

    def in_less_room(self, subject: Subject) -> Subject | None:
        """Return the subject in no worlds as large as the one that has failed for want of room.

        None where none has. Raises NotJudged where a rank by itself has.
        """
        failed = [size for size in self._unfit if size <= subject.max_world]
        if not failed:
            return None
        why = self._unfit[min(failed)]
        if min(failed) == 1:
            raise NotJudged(f"ranks cannot be run here: {why}")
        size = next(n for n in SIZES if n < min(failed))
        return subject.knowing(room=size, no_room=f"{min(failed)} ranks: {why}")

    def run(self, subject: Subject, cases: Sequence[Case | RunSpec]) -> list[Execution]:
        """Execute every case; order is kept, faults are values."""
        return self.submit(subject, cases).executions()

    def shared(self, subject: Subject, cases: Sequence[Case | RunSpec]) -> Submitted:
        """Start the cases, but those that these ranks have run for another judge of the subject.

        A bare case is taken to have one result: that it has is a check's own, which runs it twice.
        """
        return self._judged.or_submitted(subject, list(map(as_run_spec, cases)), self.submit)

    def begin_ahead(self, subject: Subject, specs: Sequence[RunSpec], submitted: Submitted) -> None:
        """Keep what was started before it is asked for; what was kept so is not asked for."""
        self._without_ahead()
        self._ahead = subject, specs, submitted

    def begun(self, subject: Subject, specs: Sequence[RunSpec]) -> Submitted | None:
        """Return what was started ahead, where that is asked for; it is kept no longer."""
        if self._ahead is None or self._ahead[:2] != (subject, specs):
            return None
        submitted, self._ahead = self._ahead[2], None
        return submitted

    def _without_ahead(self) -> None:
        """Wait for what was started ahead and is not asked for, so that it is not run again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(NotJudged, UnknownVersion):
                ahead[2].executions()

    def diagnosed(self, subject: Subject, cases: Sequence[Case | RunSpec]) -> list[Execution]:
        """Execute the cases, but those that were run for an earlier diagnosis of the subject.

        Each finding is explained by a hundred of the same steps, in ranks that may be new for it.
        """
        specs = list(map(as_run_spec, cases))
        return self._diagnosed.or_submitted(subject, specs, self.submit).executions()

    def submit(self, subject: Subject, cases: Sequence[Case | RunSpec]) -> Submitted:
        """Start the cases."""
        specs = list(map(as_run_spec, cases))
        parts = {
            where: self._part(subject, where, [t for t in specs if t.where == where])
            for where in dict.fromkeys(t.where for t in specs)
        }
        if parts.keys() == {""}:
            return parts[""]

        def executions() -> list[Execution]:
            found = {where: iter(part.executions()) for where, part in parts.items()}
            return [next(found[t.where]) for t in specs]

        return Submitted(executions, lambda: any(part.stumbles() for part in parts.values()))

    def _part(self, subject: Subject, where: Where, specs: Sequence[RunSpec]) -> Submitted:
        if not where:
            return self._send(subject, specs)
        bare = [replace(t, where="") for t in specs]
        if where == APART:
            return Submitted(lambda: [self._apart(subject, t) for t in bare], lambda: False)
        if where == AGAINST:
            assert subject.against is not None
            return self._others[AGAINST].submit(subject.against, bare)
        if where == REAL:
            engine = closing(subject.engine)
            assert engine is not None
            ranks = self._ranks(where, {"engine": engine.name})
            return ranks.submit(replace(subject, engine=engine), bare)
        return self._ranks(where, size=max(t.num_ranks for t in bare)).submit(subject, bare)

    def _apart(self, subject: Subject, wanted: RunSpec) -> Execution:
        """Run each virtual rank in a process that has run nothing; return their sum, reduced."""
        alone = [replace(wanted, virtual=(rank,), fresh=True) for rank in wanted.virtual]
        parts = self._send(subject, alone).executions()
        failed = next((part for part in parts if part.weights is None), None)
        if failed is not None:
            return failed
        whole = replace(
            parts[0],
            weights=np.sum([p.weights for p in parts if p.weights is not None], axis=0),
            local_losses=tuple(p.local_losses[0] for p in parts),
            counts=tuple(n for p in parts for n in p.counts),
            communicates=any(p.communicates for p in parts),
        )
        return reduced(subject, whole)

    def begin_real(self, subject: Subject) -> None:
        """Have the library's engine imported while other ranks work."""
        engine = closing(subject.engine)
        if engine is not None and REAL not in self._others:
            with suppress(PoolError):  # reported where these ranks are needed
                self._template.begin_sibling({"engine": engine.name})

    def _ranks(self, where: Where, asked: Mapping[str, str] = NOTHING, size: int = 1) -> Executor:
        """Return other ranks, which stay: compiled, launched, or under another engine."""
        if where not in self._others:
            if where == LAUNCHED and (why := resource_headroom.no_memory_to_launch(size)):
                raise NotJudged(why)
            setup, more = _SETUPS[where]
            template = self._template.sibling({**setup, **asked}, more, launched=where == LAUNCHED)
            if isinstance(template, TemplateFailure):
                raise NotJudged(f"cannot be imported {where}: {template.message}")
            self._others[where] = Executor(template)
        return self._others[where]

    def _send(self, subject: Subject, specs: Sequence[RunSpec]) -> Submitted:
        specs = [_promised(subject, t) if t.before else t for t in specs]
        specs = [replace(t, case=subject.shown(t.case, zeros=t.zeros)) for t in specs]
        seconds = max(self._cpu_seconds or 0.0, self._retry_policy.seconds or 0.0) or None
        jobs = [self._job(subject, t, seconds, usual=self._usual(subject, t)) for t in specs]
        for wanted in specs:
            size, steps = wanted.num_ranks, 1 + len(wanted.before)
            if (why := self._unfit.get(size)) is not None:
                raise NotJudged(why)  # what failed twice is not tried for every case
            self.executed += steps
            self.worlds[size] = self.worlds.get(size, 0) + steps
        pending = self._template.submit(jobs)

        def executions() -> list[Execution]:
            done = self._executions(subject, specs, pending)
            self._outlive(subject, specs, done)
            self._retry_policy.seen(max((e.first_seconds for e in done), default=0.0))
            self._slowest = max([self._slowest, *(e.call_seconds for e in done)])
            odd = [n for n, execution in enumerate(done) if doubtful(execution.failure)]
            if odd and self._again(subject, specs[odd[0]], done[odd[0]].failure):
                again = self._send(subject, [specs[n] for n in odd]).executions()
                for n, execution in zip(odd, again, strict=True):
                    done[n] = execution
            return done

        return Submitted(executions, pending.stumbles)

    def _usual(self, subject: Subject, wanted: RunSpec) -> bool:
        whose = (subject.function, wanted.mode or subject.claim.mode, subject.engine.name)
        how = (wanted.elsewhere, wanted.virtual != (), wanted.scale, wanted.under)
        return not wanted.noted and self._trace_sampling.usual(wanted.case, (whose, how))

    def _executions(
        self, subject: Subject, specs: Sequence[RunSpec], pending: Pending
    ) -> list[Execution]:
        outcomes = pending.wait()
        for wanted, fault in zip(specs, outcomes, strict=True):
            if isinstance(fault, Fault) and fault.is_internal:
                # An engine that warms up may run out of memory as well, before the reducer runs.
                reached = fault.error is not None and fault.error.candidate_line
                ran_out = reached and resource_headroom.ran_out(fault.message)
                what = _NO_ROOM if ran_out else "ranks do not get as far as the reducer here"
                self._unfit[fault.size] = why = resource_headroom.without(what, fault.message)
                raise NotJudged(why)
            # A version may not know how a mode is asked for that it does not offer.
            if isinstance(fault, Fault) and wanted.mode in (None, NONLINEAR, *subject.offered):
                for error in fault.errors.values():
                    if error.breach == NotKnown.name:
                        raise UnknownVersion(error.message)
        return [executed(subject, *pair) for pair in zip(specs, outcomes, strict=True)]

    def _outlive(self, subject: Subject, specs: Sequence[RunSpec], done: list[Execution]) -> None:
        """Run again, in their place, cases whose ranks somebody else may have ended.

        Raises NotJudged where that does not help and the reducer is not shown to do it.
        """
        while ended := [n for n, e in enumerate(done) if e.failure and e.failure.ended]:
            failure = done[ended[0]].failure
            assert failure is not None

            def ends(n: int = ended[0]) -> Fault | None:
                [outcome] = self._template.run([self._job(subject, specs[n], None)])
                return outcome if isinstance(outcome, Fault) else None

            if not self._retry_policy.outlives(failure, ends):
                return
            left = [specs[n] for n in ended]
            jobs = [self._job(subject, wanted, None) for wanted in left]
            again = self._executions(subject, left, self._template.submit(jobs))
            for n, execution in zip(ended, again, strict=True):
                done[n] = execution

    def _again(self, subject: Subject, wanted: RunSpec, failure: Fault | None) -> bool:
        def runs_away(seconds: float) -> bool:
            [outcome] = self._template.run([self._job(subject, wanted, seconds)])
            return isinstance(outcome, Fault) and outcome.kind == "runaway"

        assert failure is not None
        return self._retry_policy.again(failure, runs_away)

    def _job(
        self, subject: Subject, wanted: RunSpec, asked: float | None, *, usual: bool = False
    ) -> Job:
        layout, tokens = wanted.case.layout, wanted.case.step.num_response_tokens
        if len(wanted.virtual) > MAX_WORLD:
            asked = (asked or limits.CPU_SECONDS) * len(wanted.virtual) / MAX_WORLD
        calls = layout.num_microbatches * (1 + len(wanted.before)) * max(1, len(wanted.virtual))
        return Job(
            wanted.num_ranks,
            assignment(subject, wanted, self._note, usual=usual).to_json(),
            limits.cpu_seconds(tokens, calls, asked, self._slowest),
            together=wanted.plain and subject.engine.merges and tokens <= limits.LARGE_STEP,
            fresh=wanted.fresh,
            answer=decode_replies.most_bytes(wanted),
        )

    @property
    def outlived(self) -> tuple[str, ...]:
        """Signals by which ranks of this subject were ended from outside, one for each time."""
        return tuple(self._retry_policy.outlived)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Every case gets the full processor time, also once one has run away."""
        every = (self, *self._others.values())
        for each in every:
            each._cpu_seconds = each._template.cpu_seconds
        try:
            yield
        finally:
            for each in every:
                each._cpu_seconds = None

    def fresh(self, cases: Sequence[Case | RunSpec] = ()) -> None:
        """Replace the worlds of these cases, or every world: nothing of earlier ones remains."""
        specs = list(map(as_run_spec, cases))
        self._without_ahead()
        self._template.restart_worlds({t.num_ranks for t in specs} or None)
        self._judged.clear()
        self._retry_policy.doubt()
        for where, other in self._others.items():
            theirs = [replace(t, where="") for t in specs if t.where == where]
            if theirs or not specs:
                other.fresh(theirs)


_SETUPS: Mapping[Where, tuple[dict[str, Any], dict[str, Any]]] = {
    COMPILED: ({"compile": True}, limits.COMPILED),
    LAUNCHED: ({}, limits.LAUNCHED),
    REAL: ({}, {}),
}
"""What is added to a handler's setup, and under which options."""


def _promised(subject: Subject, wanted: RunSpec) -> RunSpec:
    """Keep, of the steps before, those that the trainer may run: a promise holds for them, too."""
    return replace(wanted, before=tuple(filter(subject.keeps_promises, wanted.before)))
