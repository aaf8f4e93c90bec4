"""The loss is linear in the per-token losses, so that its weights are the whole truth about it.

Weights equal at different loss values, ``f(0) = 0`` and ``f(c*x) = c*f(x)``: with these, right on
one step means right for every loss value on that step (semantics, "One training step").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import Check, Finding, as_it_is, failure_finding
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import alone
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles.bounds import PRECISIONS, scalar_bound
from aggverify.steps.case import Case

NAME = "linear_in_the_losses"
NOT_LINEAR, CONSTANT, NOT_SCALED = "AGV131", "AGV132", "AGV133"
SCALES = (1024.0, 2.0**-10)
"""Powers of two: scaling by them rounds nothing. Far from 1, so that thresholds are crossed."""


def space(subject: Subject) -> Space | None:
    """One rank; only where a mode is claimed, since every mode is linear."""
    return alone(subject) if subject.mode_name is not None else None


def variants(case: Case) -> tuple[Case | RunSpec, ...]:
    """Return the case; other losses of both signs; those scaled; some of them zero, and all."""
    other = tuple((-1) ** t * (7 * t + 3) / 16 for t in range(len(case.losses)))
    scaled = [case.with_losses(tuple(c * x for x in other)) for c in SCALES]
    first = range(case.step.samples[0].response_length)
    none = first if len(case.step.samples) > 1 else first[1::2]
    some = case.with_losses(tuple(0.0 if t in none else x for t, x in enumerate(other)))
    zero = case.with_losses((0.0,) * len(other))
    return case, case.with_losses(other), *scaled, RunSpec(some, zeros=True), zero


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare weights under all losses, the value at 0, and the values under scaling."""
    for execution in executions:
        failed = failure_finding(NAME, subject, execution)
        if failed is not None:
            return failed
    first, other, *scaled, some, zero = executions
    if not all(map(is_finite, executions)):
        return None
    if zero.value and not any(zero.case.losses):
        message = f"{float(zero.value):.3g} is added to the loss: f(0) is not 0"
        return Finding(CONSTANT, NAME, message, first.case, subject.mode)
    some = _as_shown(subject, first, some)
    for execution in (other, *scaled, some, zero):
        found = _weights_differ(subject, first, execution)
        if found is not None:
            return found
    for scale, execution in zip(SCALES, scaled, strict=True):
        found = _not_scaled(subject, other, execution, scale)
        if found is not None:
            return found
    return None


def _as_shown(subject: Subject, first: Execution, some: Execution) -> Execution:
    """Return the execution with the first one's weights where losses of 0 do not show them."""
    if not subject.hides_zeros:
        return some
    assert first.weights is not None and some.weights is not None
    return replace(
        some, weights=np.where(np.equal(some.case.losses, 0), first.weights, some.weights)
    )


def _weights_differ(subject: Subject, first: Execution, other: Execution) -> Finding | None:
    assert first.weights is not None
    assert other.weights is not None
    reference = [Fraction(w) for w in first.weights.tolist()]
    precision = lowest_precision(subject, first.case)
    roundings = 2 * subject.roundings_on(first.case.step)
    found = worst_weight(other.weights, reference, roundings, precision)
    if found is None or found.token is None:
        return None
    t = found.token
    message = (
        f"the weight of token {t} is {float(first.weights[t])!r} when its loss is "
        f"{first.case.losses[t]!r}, and {float(other.weights[t])!r} when it is "
        f"{other.case.losses[t]!r}"
    )
    return Finding(NOT_LINEAR, NAME, message, first.case, subject.mode)


def _not_scaled(
    subject: Subject, one: Execution, scaled: Execution, scale: float
) -> Finding | None:
    """Both values carry roundings of their own: each may be off by its bound.

    Where a loss may also report log-probabilities, which do not scale, the reported value is for
    T12 to judge.
    """
    if one.value is None or scaled.value is None or scaled.weights is None:
        return None
    if subject.reports_instead(one.case) is not None:
        return None
    exact = Fraction(scale) * one.value
    terms = [
        abs(Fraction(w) * Fraction(x))
        for w, x in zip(scaled.weights.tolist(), scaled.case.losses, strict=True)
    ]
    precision = PRECISIONS[lowest_precision(subject, one.case)]
    roundings = subject.roundings_on(one.case.step) + 1
    bound = 2 * scalar_bound(sum(terms, Fraction(0)), len(terms), roundings, precision)
    if abs(scaled.value - exact) <= bound:
        return None
    message = (
        f"losses times {scale:g} make the loss {float(scaled.value)!r}, not {scale:g} times "
        f"{float(one.value)!r}"
    )
    return Finding(NOT_SCALED, NAME, message, one.case, subject.mode)


CHECK = Check(
    name=NAME,
    title="weights do not depend on the losses, f(0) = 0 and f(c*x) = c*f(x)",
    space=space,
    variants=variants,
    judge=judge,
    project=lambda case: case.trivial,
    max_examples=20,
    max_stored=12,
    on_branches=as_it_is,
    establishes=lambda subject, cases: (
        "linear in the losses: the weights characterise it, whatever the losses are"
    ),
    linear_only=True,
    of_weights=False,
)
