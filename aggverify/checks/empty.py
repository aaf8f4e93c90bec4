"""T5: fully masked samples, rollouts, groups, micro-batches, ranks and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.formula import judge_formula
from aggverify.checks.layout import COMBINED, judge_layout
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Step
from aggverify.steps.case import Case

NAME = "empty_units_weigh_nothing"


def space(subject: Subject) -> Space:
    """The combined space, with one unit blanked out."""
    base = COMBINED.space(subject) or Space()
    return replace(
        base,
        max_dp=min(base.max_dp, 4),
        max_cp=min(base.max_cp, 2),
        max_microbatches=min(base.max_microbatches, 2),
        min_units=1,
        empty_samples=True,
        blank_a_unit=True,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Finite, zero where masked, and the policy's weights elsewhere, trivial layout first."""
    *control, spread = executions
    for trivial in control:
        found = judge_formula(NAME, ("AGV112", "AGV111"), subject, trivial)
        if found is not None:
            return found
    if spread.case.layout.is_trivial:
        return judge_formula(NAME, ("AGV112", "AGV111"), subject, spread)
    failed = failure_finding(NAME, subject, spread)
    if failed is not None or spread.weights is None:
        return failed
    if not np.isfinite(spread.weights).all():
        return judge_formula(NAME, ("AGV112", "AGV111"), subject, spread)
    return judge_layout(NAME, "AGV112", subject, control, spread)


def variants(case: Case) -> tuple[Case, ...]:
    """The step on one rank, and as laid out."""
    return (case.trivial, case)


def project(case: Case) -> Case:
    """A stored case with its first sample fully masked."""
    first, *others = case.step.samples
    blank = replace(first, loss_mask=bytes(first.response_length))
    return replace(case, step=Step((blank, *others)))


CHECK = Check(
    name=NAME,
    title="fully masked units: finite, zero weight, the others as the policy says",
    tests="T5",
    space=space,
    variants=variants,
    judge=judge,
    project=project,
    control_first=True,
    requires=("independent",),
)
