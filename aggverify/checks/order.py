"""T10: weights follow their samples when samples, micro-batches, ranks or ids change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggverify.checks.base import LAYOUT, Check, Finding
from aggverify.checks.judging import is_finite, judge_spread
from aggverify.checks.spaces import small
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case
from aggverify.steps.reordering import interleaved, rearranged, shuffled, tidied

NAME = "weights_follow_the_samples"
CODE = "AGV205"


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """The oracle's weights, or those of the same samples in ascending order."""
    *control, mixed = executions
    if not all(map(is_finite, control)):
        return None  # wrong in any order: another check's to say
    followed = [_followed(e, mixed.case) for e in control]
    found = judge_spread(NAME, CODE, subject, [*followed, mixed])
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
    space=lambda subject: small(subject, shuffled=True),
    variants=lambda case: (tidied(case)[0], case),
    judge=judge,
    project=shuffled,
    control_first=True,
    alone_after=(LAYOUT,),
    max_examples=30,
    max_stored=20,
    on_branches=interleaved,
)
