"""T10: weights follow their samples when samples, micro-batches, ranks or ids change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.layout import COMBINED, judge_layout
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.reordering import rearranged, shuffled, tidied

NAME = "weights_follow_the_samples"
CODE = "AGV205"


def space(subject: Subject) -> Space:
    """Small layouts in any order the convention's driver may produce."""
    base = COMBINED.space(subject) or Space()
    return replace(
        base,
        max_dp=min(base.max_dp, 2),
        max_cp=min(base.max_cp, 2),
        max_microbatches=min(base.max_microbatches, 2),
        min_units=1,
        shuffled=True,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """The oracle's weights, or those of the same samples in ascending order."""
    *control, mixed = executions
    if any(e.weights is None or not np.isfinite(e.weights).all() for e in control):
        return None  # wrong in any order: another check's to tell
    failed = failure_finding(NAME, subject, mixed)
    if failed is not None or mixed.weights is None:
        return failed
    found = judge_layout(NAME, CODE, subject, [_followed(e, mixed.case) for e in control], mixed)
    if found is None or found.reference == "the oracle":
        return found
    return replace(found, reference="the same samples in ascending order")


def _followed(control: Execution, case: Case) -> Execution:
    """The control's weights, each at the place its token has in the case."""
    assert control.weights is not None
    _, order = tidied(case)
    place = sorted(range(len(order)), key=order.__getitem__)
    weights = rearranged(control.case.step, control.weights.tolist(), place)
    return Execution(case, np.array(weights), control.value)


CHECK = Check(
    name=NAME,
    title="samples, micro-batches, ranks and ids in another order: the weights follow",
    tests="T10",
    space=space,
    variants=lambda case: (tidied(case)[0], case),
    judge=judge,
    project=shuffled,
    control_first=True,
    requires=("independent",),
    max_examples=30,
    max_stored=20,
)
