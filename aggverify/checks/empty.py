"""T5: fully masked samples, rollouts, groups, micro-batches, ranks and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggverify.checks.base import LAYOUT, Check, Finding
from aggverify.checks.judging import is_finite, judge_formula, judge_spread
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Step
from aggverify.steps.case import Case

NAME = "empty_units_weigh_nothing"
CODES = ("AGV112", "AGV111")
"""Wrong, and not finite."""


def space(subject: Subject) -> Space:
    """All layouts, with one unit fully masked."""
    return spread(
        subject, dp=4, cp=2, micro_batches=2, min_units=1, empty_samples=True, blank_a_unit=True
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Finite, zero where masked, and the policy's weights elsewhere, trivial layout first."""
    *control, laid_out = executions
    for trivial in control:
        found = judge_formula(NAME, CODES, subject, trivial)
        if found is not None:
            return found
    not_finite = laid_out.weights is not None and not is_finite(laid_out)
    if laid_out.case.layout.is_trivial or not_finite:
        return judge_formula(NAME, CODES, subject, laid_out)
    return judge_spread(NAME, CODES[0], subject, executions)


def variants(case: Case) -> tuple[Case, ...]:
    """Return the step on one rank, and as laid out."""
    return (case.trivial, case)


def project(case: Case) -> Case:
    """Return a stored case with its first sample fully masked."""
    first, *others = case.step.samples
    blank = replace(first, loss_mask=bytes(first.response_length))
    return replace(case, step=Step((blank, *others)))


CHECK = Check(
    name=NAME,
    title="fully masked units: finite, zero weight, the others as in the policy",
    tests="T5",
    space=space,
    variants=variants,
    judge=judge,
    project=project,
    control_first=True,
    alone_after=(LAYOUT,),
    max_examples=75,
)
