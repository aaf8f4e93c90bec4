"""An asynchronous collective has its result once it is waited for, and not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from aggverify.checks.base import Check, Finding, as_it_is
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import hard, spread
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.shapes import levels
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.world.deferred_completion import AT_ONCE, WAITED_FOR

NAME = "waits_for_collectives"
CODE = "AGV411"


def space(subject: Subject) -> Space | None:
    """Return layouts on a few ranks, so that every group has two members in some case."""
    found = spread(
        subject, dp=2, cp=2, micro_batches=2, min_world=2, max_world=min(4, subject.max_world)
    )
    return found if max(found.max_dp, found.max_cp) > 1 else None


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare, to the last bit, with the result when collectives complete as early as they may.

    A reducer that does not give the same twice even then is not judged: other checks report it.
    """
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
    elif first.logs == early.logs != late.logs:
        what = "logs are others than where they complete at once"
    else:
        return None
    message = f"with asynchronous collectives that complete only when waited for {what}"
    return Finding(CODE, NAME, message, late.case, subject.mode, fault=late.failure)


def _variants(case: Case) -> tuple[RunSpec, ...]:
    return (*[RunSpec(case, arrival=AT_ONCE)] * 2, RunSpec(case, arrival=WAITED_FOR))


_MANY = 33
"""Samples of a micro-batch: more than are sent at a time."""


def _stored(subject: Subject) -> Iterator[Case]:
    """Yield the usual ones, and one of many samples on all kinds of ranks."""
    own = space(subject)
    if own is None:
        return
    yield from islice(hard(subject, own), _USUAL)
    dp, cp = min(own.max_dp, 2), min(own.max_cp, 2)
    if dp * cp > own.max_world:
        dp = 1
    step = Step(tuple(Sample(1, b"\1\1\1", i, i) for i in range(dp * _MANY)))
    cells = tuple((tuple(range(d * _MANY, (d + 1) * _MANY)),) for d in range(dp))
    yield Case(step, Layout(cells, cp, own.cp_kinds[0] if cp > 1 else "zigzag"), levels(step))


_USUAL = 6
CHECK = Check(
    name=NAME,
    title="asynchronous collectives are waited for before their result is used",
    space=space,
    variants=_variants,
    judge=judge,
    max_examples=4,
    stored=_stored,
    max_stored=_USUAL,
    on_branches=as_it_is,
    of_weights=False,
)
