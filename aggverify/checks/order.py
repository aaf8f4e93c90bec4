"""T10: weights follow their samples when samples, micro-batches, ranks or ids change places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from aggverify.checks.base import LAYOUT, ORACLE, Check, Finding
from aggverify.checks.judging import is_finite, judge_spread
from aggverify.checks.spaces import hard, small
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.reordering import interleaved, rearranged, shuffled, tidied

NAME = "weights_follow_the_samples"
CODE = "AGV205"


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare with the oracle's weights, or with those of the same samples in ascending order."""
    *control, mixed = executions
    if not all(map(is_finite, control)):
        return None  # wrong in any order: another check reports it
    followed = [_followed(e, mixed.case) for e in control]
    found = judge_spread(NAME, CODE, subject, [*followed, mixed])
    if found is None or found.reference == ORACLE:
        return found
    return replace(found, reference="the same samples in ascending order")


def _followed(control: Execution, case: Case) -> Execution:
    """Return the control's weights, each at the place its token has in the case."""
    assert control.weights is not None
    _, order = tidied(case)
    place = sorted(range(len(order)), key=order.__getitem__)
    weights = rearranged(control.case.step, control.weights.tolist(), place)
    return Execution(case, np.array(weights), control.value)


_TURNS = Step(
    tuple(Sample(1, b"\1" * n, rollout, 0) for n, rollout in ((1, 0), (2, 0), (1, 1), (3, 1)))
)
TURNS_MIXED = Case(_TURNS, Layout((((0, 2, 1, 3),),)), plain_losses(_TURNS))
"""One micro-batch with the samples of two rollouts in turn."""
_USUAL = 20


def space(subject: Subject) -> Space:
    """Small layouts in any order."""
    return small(subject, shuffled=True)


def stored(subject: Subject) -> Iterator[Case]:
    """Yield the usual ones out of order, and rollouts whose samples lie apart."""
    yield TURNS_MIXED
    yield from islice(hard(subject, space(subject), shuffled), _USUAL)


CHECK = Check(
    name=NAME,
    title="samples, micro-batches, ranks and ids in another order: the weights follow",
    tests="T10",
    space=space,
    variants=lambda case: (tidied(case)[0], case),
    judge=judge,
    project=shuffled,
    control_first=True,
    alone_after=(LAYOUT,),
    max_examples=30,
    stored=stored,
    max_stored=_USUAL,
    on_branches=interleaved,
)
