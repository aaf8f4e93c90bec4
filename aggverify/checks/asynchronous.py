"""An asynchronous collective has its result once it is waited for, and not before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggverify.checks.base import Check, Finding, Shown, as_it_is
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.world.unwaited import AT_ONCE, WAITED_FOR

NAME = "waits_for_collectives"
CODE = "AGV411"


def space(subject: Subject) -> Space | None:
    """A few ranks, so that every group has two members in some case."""
    found = spread(
        subject, dp=2, cp=2, micro_batches=2, min_world=2, max_world=min(4, subject.max_world)
    )
    return found if max(found.max_dp, found.max_cp) > 1 else None


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """To the last bit what comes of it when results arrive as early as they may; nothing is said of
    a reducer that does not give the same twice then, which other checks tell."""
    first, early, late = executions
    if early.failure is not None or early.weights is None or not is_finite(early):
        return None
    if first.weights is None or not np.array_equal(first.weights, early.weights):
        return None
    if first.local_losses != early.local_losses:
        return None
    if late.weights is None:
        what = late.failure.message if late.failure else "there is no result"
    elif not np.array_equal(late.weights, early.weights):
        token = int(np.flatnonzero(late.weights != early.weights)[0])
        what = (
            f"the weight of token {token} is {float(late.weights[token])!r}, and "
            f"{float(early.weights[token])!r} where they complete at once"
        )
    elif late.local_losses != early.local_losses:
        what = f"the losses are {late.local_losses}, and {early.local_losses} otherwise"
    else:
        return None
    message = f"with asynchronous collectives that complete only when waited for {what}"
    return Finding(CODE, NAME, message, late.case, subject.mode)


def _variants(case: Case) -> tuple[Trial, ...]:
    return (*[Trial(case, arrival=AT_ONCE)] * 2, Trial(case, arrival=WAITED_FOR))


CHECK = Check(
    name=NAME,
    title="asynchronous collectives are waited for before their result is used",
    space=space,
    variants=_variants,
    judge=judge,
    max_examples=4,
    max_stored=6,
    on_branches=as_it_is,
    shown=Shown.LATE,
)
