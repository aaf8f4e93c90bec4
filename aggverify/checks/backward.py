"""The gradient follows whatever the loss is multiplied by before backward.

Trainers scale losses: for mixed precision, for accumulation, for several terms of one objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

from aggverify.checks.base import Check, Finding, as_it_is, failure_finding
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.checks.judging import is_finite, with_mismatch
from aggverify.checks.spaces import hard_and_long, of_a_loss
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "gradient_follows_the_loss"
CODE = "AGV126"
SCALE = 1024.0
"""A power of two: it rounds nothing, and is taken out of the gradient again exactly."""


def space(subject: Subject) -> Space | None:
    """Small layouts: the backward of a reducer is one piece of code on all of them."""
    return of_a_loss(subject, dtypes=("float64",))


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare the weights under the scaled loss, the scale taken out again, with those without."""
    plain, scaled = executions
    if plain.weights is None or not is_finite(plain):
        return None
    failed = failure_finding(NAME, subject, scaled)
    if failed is not None or scaled.weights is None:
        return failed
    reference = tuple(map(Fraction, plain.weights.tolist()))
    precision = lowest_precision(subject, plain.case)
    roundings = 2 * subject.roundings_on(plain.case.step)
    off = worst_weight(scaled.weights, reference, roundings, precision)
    if off is None or off.token is None:
        return None
    was, now = (float(e.weights[off.token]) for e in (plain, scaled) if e.weights is not None)
    message = (
        f"with the loss times {SCALE:g} before backward the gradient of token {off.token} is "
        f"{now * SCALE!r}, not {SCALE:g} times {was!r}"
    )
    found = Finding(CODE, NAME, message, plain.case, subject.mode)
    return with_mismatch(found, off)


def _variants(case: Case) -> tuple[RunSpec, RunSpec]:
    return RunSpec(case), RunSpec(case, scale=SCALE)


CHECK = Check(
    name=NAME,
    title="a loss that is scaled before backward scales its gradient",
    space=space,
    stored=partial(hard_and_long, space=space, usual=8),
    variants=_variants,
    judge=judge,
    max_examples=4,
    max_stored=8,
    on_branches=as_it_is,
    of_weights=False,
)
