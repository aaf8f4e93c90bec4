"""T9: a prompt group split over micro-batches or ranks equals the whole one, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.layout import COMBINED, judge_layout
from aggverify.checks.refusal import refusal
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space

NAME = "split_groups_equal_or_refused"
CODE = "AGV206"


def space(subject: Subject) -> Space | None:
    """Unequal prompt groups, one of them in more than one micro-batch or rank."""
    base = COMBINED.space(subject)
    if base is None or subject.group_size or "straddling-groups" not in subject.features:
        return None
    return replace(
        base,
        max_dp=min(base.max_dp, 4),
        max_cp=min(base.max_cp, 1 if subject.nonlinear else 2),
        max_microbatches=min(base.max_microbatches, 2),
        split_groups=True,
        whole_groups=False,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Equal to the whole group, or loud: a silently different number is a failure."""
    *control, spread = executions
    if any(e.weights is None or not np.isfinite(e.weights).all() for e in control):
        return None
    if refusal(spread) is not None:
        return None
    failed = failure_finding(NAME, subject, spread)
    if failed is not None or spread.weights is None:
        return failed
    return judge_layout(NAME, CODE, subject, control, spread)


CHECK = Check(
    name=NAME,
    title="a prompt group that is split has the whole group's weights, or is refused loudly",
    tests="T9",
    space=space,
    variants=lambda case: (case.trivial, case),
    judge=judge,
    project=lambda case: case,
    control_first=True,
    may_refuse=True,
    max_examples=30,
    max_stored=20,
)
