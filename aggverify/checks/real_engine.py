"""The library's own engine gives what the formula that stands for it gives.

Hooks, graphs and who takes part in a reduction are not in a formula: a micro-batch whose loss does
not come from the model never starts the reduction that other ranks wait in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggverify.checks.base import Check, Finding
from aggverify.checks.judging import is_finite, judge_elsewhere
from aggverify.checks.spaces import spread
from aggverify.engines import closing
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import REAL, RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid, hard_cases, more_cases, plain_losses
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

NAME = "holds_under_the_real_engine"
CODE = "AGV413"
MOST, MOST_WIDE = 20, 6
"""Cases, and those of them on more than two ranks, which take twice the time."""
_RANKS, _RANKS_IF_THOROUGH = 2, 8
"""Hooks and graphs are seen on two; on more, engines are held against formulas by our tests."""
_IDLE = (
    ("1/11 1/1; 2/111 1/00", "0 1 | 2 3"),
    ("1/11 1/1; 2/111 1/00", "0 1 | 3 2"),
    ("1/0 1/00; 2/111 1/1", "0 1 | 2 3"),
)
"""A rank with nothing to learn from in its last micro-batch, in its first, in all."""


def _space(subject: Subject) -> Space | None:
    """On two ranks, or on up to eight; None where no engine is at hand, or one is run anyway."""
    if closing(subject.engine) is None or subject.claim.budget.profile == "quick":
        return None
    ranks = _RANKS_IF_THOROUGH if subject.claim.budget.thorough else _RANKS
    world = min(ranks, subject.max_world)
    found = spread(subject, max_world=world, empty_samples=True)
    return found if world > 1 and max(found.max_dp, found.max_cp) > 1 else None


def _listed(subject: Subject) -> Iterator[Case]:
    """Twenty of the stored ones, first those on which a rank has nothing to do."""
    space = _space(subject)
    if space is not None:
        how = space.max_world, space.cp_kinds
        stored = (*_idle(), *hard_cases(), *grid(*how), *more_cases(*how))
        fitting = [case for case in dict.fromkeys(stored) if case in space]
        narrow = [case for case in fitting if case.layout.world_size == _RANKS]
        wide = [case for case in fitting if case.layout.world_size > _RANKS][:MOST_WIDE]
        yield from (*narrow[: MOST - len(wide)], *wide)


def _idle() -> Iterator[Case]:
    for text, cells in _IDLE:
        step = parse_step(text)
        yield Case(step, Layout(parse_micro_batches(cells)), plain_losses(step))


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    formula, real = executions
    engine = closing(subject.engine)
    if formula.weights is None or not is_finite(formula) or engine is None:
        return None
    reference = f"the formula of engine {subject.engine.name}"
    found = Finding(CODE, NAME, "", real.case, subject.mode, reference=reference)
    return judge_elsewhere(found, subject, formula, real, f"under {engine.library} itself")


def _established(subject: Subject, cases: int) -> str:
    engine = closing(subject.engine)
    assert engine is not None
    return f"confirmed under {engine.library} on {cases} cases"


CHECK = Check(
    name=NAME,
    title="twenty cases give under the library's own engine what its formula gives",
    space=_space,
    variants=lambda case: (RunSpec(case, alone=True), RunSpec(case, where=REAL)),
    judge=_judge,
    only=_listed,
    not_applicable="no library's engine is at hand that the formula stands for, or it runs anyway",
    establishes=_established,
    waits_for="the library's engine is imported, for ranks of their own",
    elsewhere=REAL,
    as_found=True,
    last=True,
)
