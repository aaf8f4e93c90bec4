"""T7: padding columns, rows padded to one width, and dummy samples change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggverify.checks.base import LAYOUT, ORACLE, Check, Finding
from aggverify.checks.judging import is_finite, judge_spread
from aggverify.checks.spaces import small
from aggverify.execution.executed import Execution
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
    dummies = "dummy-samples" in subject.features and not subject.group_size
    if subject.rows is not None:
        dummies = False  # one more sample in each is another size
    if subject.most("fan-out") is not None:
        dummies = False  # a copy has its sample's rollout
    return small(subject, padded=True, dummies=dummies)


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare with the oracle's weights, or with those of the same step without padding."""
    *control, wide = executions
    if not all(map(is_finite, control)):
        return None  # wrong without padding: another check reports it
    widened = [_widened(e, wide.case) for e in control]
    found = judge_spread(NAME, CODE, subject, [*widened, wide])
    if found is None or found.reference == ORACLE:
        return found
    return replace(found, reference="the same step without padding")


def _widened(control: Execution, case: Case) -> Execution:
    """Return the control's weights at the places of its tokens in the padded case, 0 elsewhere."""
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
    alone_after=(LAYOUT,),
    not_applicable="judged by an oracle only: what is masked may still be content",
    max_examples=30,
    max_stored=20,
    on_branches=fully_padded,
)
