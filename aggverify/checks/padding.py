"""T7: padding columns, rows padded to one width, and dummy samples change nothing."""

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
from aggverify.steps.padding import fully_padded, stripped

NAME = "padding_changes_nothing"
CODE = "AGV141"


def space(subject: Subject) -> Space | None:
    """Small padded layouts; dummies where the convention's trainer makes them.

    Without an oracle a masked token may be content whose length the reducer means.
    """
    if not subject.has_oracle:
        return None
    base = COMBINED.space(subject) or Space()
    return replace(
        base,
        max_dp=min(base.max_dp, 2),
        max_cp=min(base.max_cp, 2),
        max_microbatches=min(base.max_microbatches, 2),
        min_units=1,
        padded=True,
        dummies="dummy-samples" in subject.features and not subject.group_size,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """The oracle's weights, or those of the same step without padding."""
    *control, wide = executions
    if any(e.weights is None or not np.isfinite(e.weights).all() for e in control):
        return None  # wrong without padding: another check's to tell
    failed = failure_finding(NAME, subject, wide)
    if failed is not None or wide.weights is None:
        return failed
    found = judge_layout(NAME, CODE, subject, [_widened(e, wide.case) for e in control], wide)
    if found is None or found.reference == "the oracle":
        return found
    return replace(found, reference="the same step without padding")


def _widened(control: Execution, case: Case) -> Execution:
    """The control's weights at the places of its tokens in the padded case, 0 elsewhere."""
    assert control.weights is not None
    _, places = stripped(case)
    weights = np.zeros(case.step.num_response_tokens)
    weights[places] = control.weights
    return Execution(case, weights)


CHECK = Check(
    name=NAME,
    title="padding columns, rows of one width and dummy samples change no weight",
    tests="T7",
    space=space,
    variants=lambda case: (stripped(case)[0], case),
    judge=judge,
    project=fully_padded,
    control_first=True,
    requires=("independent",),
    unclaimed="judged by an oracle only: what is masked may still be content",
    max_examples=30,
    max_stored=20,
)
