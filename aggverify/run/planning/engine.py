"""Which engine a reducer is right under, where no option names the trainer's engine.

A factor that is wrong under one engine is what another one needs: before anything is judged, let
alone advised, the engine that fits best is found on a few steps with every dimension above 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aggverify.checks.judging import is_finite
from aggverify.checks.layout import COMBINED, CONTEXT_PARALLEL, DATA_PARALLEL, MICRO_BATCHES
from aggverify.engines import formulas
from aggverify.errors import NotJudged
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.steps.case import Case
from aggverify.steps.layouts import dimensions

CASES = 4
"""Trial cases of each dimension, and of their combination."""

_CP_FEATURE = "context-parallel"
_D, _C, _K = "dp_size", "cp_size", "num_microbatches"
_FITTING_IN = ({_D, _C, _K}, {_D, _K}, {_D, _C}, {_D})
"""Dimensions in which an engine must fit, the most first: even one that fits over data-parallel
ranks alone explains a factor of their number better than one that does not."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """How one trial case went under one engine."""

    right: bool
    """Whether its weights are the mode's, on one rank and as laid out."""
    steady: bool
    """Whether they are the same in both."""


def possible_engines(subject: Subject) -> list[str]:
    """Return the claim's engine, and after it every other one, unless somebody has named it."""
    mine, how = subject.claim.engine, subject.convention
    if subject.found.engine_declared:
        return [mine]
    others = (e.name for e in formulas() if e.guessed and e.name != mine)
    allowed = (n for n in others if how.why_not(subject.mode, n, subject.claimed) is None)
    return [mine, *allowed]


def engine_settled(subject: Subject, executor: Executor) -> Subject:
    """Return the subject under the engine it fits best, its own wherever that fits as well."""
    if not subject.engine_assumed:
        return subject
    with suppress(NotJudged):  # the checks run into it too, and report what they could not judge
        return _settled(subject, executor)
    return subject


def right_engines(subject: Subject, executor: Executor) -> tuple[str, ...]:
    """Engines under which it is the claimed mode on every trial case, the claim's own first."""
    cases = _finished(subject, executor, trial_cases(subject))
    if not cases:
        return ()
    return tuple(
        name
        for name in possible_engines(subject)
        if all(fit.right for fit in _fits(subject.under(name), executor, cases).values())
    )


def _settled(subject: Subject, executor: Executor) -> Subject:
    cases = _finished(subject, executor, trial_cases(subject))
    fits: dict[str, dict[Case, _Fit]] = {}
    for allowed in _FITTING_IN:
        mine = [case for case in cases if dimensions(case.layout) <= allowed]
        for kind in ("right", "steady"):
            for name in possible_engines(subject) if mine else ():
                if name not in fits:
                    fits[name] = _fits(subject.under(name), executor, cases)
                if all(getattr(fits[name][case], kind) for case in mine):
                    found = subject if name == subject.claim.engine else subject.under(name)
                    return found if _C in allowed else _narrowed(found, fits)
    return subject


def _narrowed(subject: Subject, fits: Mapping[str, Mapping[Case, _Fit]]) -> Subject:
    """Return the subject without context parallelism, the one dimension its engine does not fit.

    Only if some engine fits that: then the code is no mistake, but written for trainers without
    context parallelism, as a factor of ``dp_size`` under DDP.
    """
    sliced = [case for case in next(iter(fits.values())) if dimensions(case.layout) == {_C}]
    right = any(all(of[case].steady for case in sliced) for of in fits.values())
    if not sliced or not right or not subject.engine_in_question or _CP_FEATURE in subject.claimed:
        return subject
    without = subject.claiming(without=subject.without | {_CP_FEATURE})
    return without.knowing(narrowed=(_CP_FEATURE,))


def trial_cases(subject: Subject) -> list[Case]:
    """Return stored cases of each dimension (data, context, micro-batches) and of all at once."""
    found: dict[Case, None] = {}
    for check in (DATA_PARALLEL, MICRO_BATCHES, CONTEXT_PARALLEL, COMBINED):
        space = check.space(subject)
        if space is None:
            continue
        stored = (*hard_cases(), *grid(subject.max_world, space.cp_kinds))
        mine = [c for c in dict.fromkeys(map(check.project, stored)) if c in space]
        mine = [c for c in mine if c.layout.cp_size == 1 or c.layout.cp_kind == space.cp_kinds[0]]
        mine.sort(key=lambda case: (-len(dimensions(case.layout)), case.layout.world_size))
        found |= dict.fromkeys(mine[:CASES])
    return list(found)


def _finished(subject: Subject, executor: Executor, cases: Sequence[Case]) -> list[Case]:
    """Return the cases that give a result: what raises or hangs does so under every engine."""
    done = executor.run(subject, cases)
    return [case for case, execution in zip(cases, done, strict=True) if is_finite(execution)]


def _fits(subject: Subject, executor: Executor, cases: Sequence[Case]) -> dict[Case, _Fit]:
    """Return how each case goes, by float32's bound.

    A reducer may compute in float32, and a wrong factor is far beyond that bound.
    """
    subject = subject.knowing(computes_in="float32")
    done = iter(executor.run(subject, [c for case in cases for c in (case.trivial, case)]))
    return {case: _fit(subject, next(done), next(done)) for case in cases}


def _fit(subject: Subject, alone: Execution, spread: Execution) -> _Fit:
    def same(*executions: Execution) -> bool:
        return COMBINED.judge(subject, executions) is None

    steady = is_finite(alone) and same(alone, spread)
    oracle = subject.has_oracle and not subject.nonlinear
    return _Fit(steady and (not oracle or (same(alone) and same(spread))), steady)
