"""T12: the reported loss is the scalar whose gradient is taken.

Dense losses leave it a bound that grows with the step; sparse probes, where one token alone has a
loss, judge it as sharply as a weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from aggverify.checks.base import ORACLE, Check, Finding, as_it_is
from aggverify.checks.comparison import (
    lowest_precision,
    scalar_mismatch,
    stalls,
    weighted_sum,
    worst_weight,
)
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import of_a_loss, with_branches
from aggverify.execution.executed import Execution, Weights
from aggverify.execution.subject import Subject
from aggverify.generation.shapes import sum_of_many
from aggverify.steps.case import Case

NAME = "reported_loss_is_the_scalar"
CODE, NOT_FINITE, IN_FEW_BITS = "AGV102", "AGV104", "AGV301"
FEW = 200
LARGE = 2.0**20
"""A power of two: it rounds nothing."""


def probe(case: Case) -> Case:
    """Return the case with every unmasked loss 0 but the largest, which becomes 1 if it is 0 too.

    Adding zeros is exact, so the scalar has one term and its bound does not grow with the step.
    """
    behind = set(case.masked_tokens())
    tokens = [t for t in range(len(case.losses)) if t not in behind]
    if not tokens:
        return case
    one = max(tokens, key=lambda t: abs(case.losses[t]))
    losses = [loss if t in behind else 0.0 for t, loss in enumerate(case.losses)]
    losses[one] = case.losses[one] or 1.0
    return case.with_losses(tuple(losses))


def _large(case: Case) -> Case:
    """Return the case with losses beyond what float16 has numbers for."""
    return case.with_losses(tuple(LARGE * loss for loss in case.losses))


def _variants(case: Case) -> tuple[Case, ...]:
    """Return all losses, and of every second case large ones, of the others one alone.

    All 22 known reducers that this check finds are found so, in two thirds of the steps.
    """
    is_odd = (len(case.step.samples) + case.step.num_response_tokens) % 2 == 1
    other = probe if is_odd or case.dtype == "float16" else _large
    return (case, other(case), *_few(case))


def _few(case: Case) -> tuple[Case, ...]:
    """Return the first of many terms alone, and all of them in float64.

    16 bits add up the first ones exactly, and float64 loses nothing.
    """
    if case != sum_of_many():
        return ()
    few = case.with_losses(tuple(x if t < FEW else 0.0 for t, x in enumerate(case.losses)))
    return few, replace(case, dtype="float64")


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare the reported scalar with ``sum w*l``, dense losses first.

    w is the oracle's, or, where another check reports that the weights differ from it, the observed
    one.
    """
    for execution in executions:
        found = _judged(subject, execution)
        if found is not None:
            return found
    if executions[0].case != sum_of_many():
        return None
    # Where few terms are lost as well it is no sum that stops growing.
    many, few = (_stalled(subject, executions[n]) for n in (0, -2))
    return None if few is not None else many


def _judged(subject: Subject, execution: Execution) -> Finding | None:
    case, weights = execution.case, execution.weights
    if weights is None or not is_finite(execution):
        return None  # another check reports it
    if execution.value is None:
        message = "the weights are finite, the reported loss is not"
        return Finding(NOT_FINITE, NAME, message, case, subject.mode)
    right, reference = _weights(subject, case, weights)
    found = scalar_mismatch(subject, case, execution.value, right)
    if found is None or _is_the_modes(subject, case, execution.value):
        return None
    message = f"the reported loss is {float(execution.value)!r}, sum w*l is {float(found.exact)!r}"
    return Finding(
        CODE,
        NAME,
        message,
        case,
        subject.mode,
        right,
        tuple(weights.tolist()),
        reference,
        error=found.error,
        bound=found.bound,
        limit=found.limit,
    )


def _stalled(subject: Subject, execution: Execution) -> Finding | None:
    case, value, weights = execution.case, execution.value, execution.weights
    if value is None or weights is None or not is_finite(execution):
        return None
    right, _ = _weights(subject, case, weights)
    exact, _, _ = weighted_sum(right, case.losses)
    if not stalls(case, value, exact):
        return None
    message = (
        f"the reported loss is {float(value)!r}, sum w*l is {float(exact)!r}: it is added up in "
        f"{case.dtype}"
    )
    return Finding(IN_FEW_BITS, NAME, message, case, subject.mode, error=abs(value - exact))


def _is_the_modes(subject: Subject, case: Case, value: Fraction) -> bool:
    """Whether it is the mode's scalar.

    Then the loss is right and the update is wrong, which the checks of weights report.
    """
    right = subject.expected(case.step)
    return right is not None and scalar_mismatch(subject, case, value, right) is None


def _weights(subject: Subject, case: Case, observed: Weights) -> tuple[tuple[Fraction, ...], str]:
    expected, precision = subject.expected(case.step), lowest_precision(subject, case)
    roundings = subject.roundings_on(case.step)
    if expected and worst_weight(observed, expected, roundings, precision) is None:
        return expected, ORACLE
    return tuple(Fraction(w) for w in observed.tolist()), "the gradient"


def _stored(subject: Subject) -> Iterator[Case]:
    """Those where code branches, and sums of many terms."""
    yield from with_branches(subject, of_a_loss)
    yield sum_of_many()


CHECK = Check(
    name=NAME,
    title="the reported loss is sum w*l, with all losses, large ones and one alone",
    tests="T12",
    space=of_a_loss,
    stored=_stored,
    variants=_variants,
    judge=judge,
    max_examples=60,
    on_branches=as_it_is,
    judges_scalar=True,
    of_weights=False,
    linear_only=True,
)
