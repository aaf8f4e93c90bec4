"""The mode that a reducer implements, and its precision, read off a few distinguishing steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from aggverify.checks.comparison import worst_weight
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import MODES
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

IDENTIFYING = (
    "2/1 3/111; 5/11 1/1011 7/11111",
    "1/11111 4/1; 3/111; 2/1111111 1/11",
    "3/111 2/1111111 1/11; 4/1",
)
"""Steps on which every mode has other weights than every other (tested)."""

_EXACT_DIVISOR = 8.0
_EXACT_STEP = "1/1 1/1 1/11; 1/1111"
"""All counts (tokens of every unit, N, P) are powers of two: float32 arithmetic is exact here, an
added epsilon is not."""


def distinguishing_cases() -> tuple[Case, ...]:
    """Return the distinguishing steps on one rank."""
    return tuple(_trivial(text) for text in IDENTIFYING)


def identify(
    subject: Subject, executor: Executor, modes: Sequence[str]
) -> tuple[str, float | None] | None:
    """Return the mode (and divisor) whose exact weights it has on every distinguishing step."""
    executions = executor.run(subject, distinguishing_cases())
    if any(e.weights is None or not np.isfinite(e.weights).all() for e in executions):
        return None
    for mode, divisor in _hypotheses(executions, modes):
        hypothesis = subject.claiming(mode=mode, divisor=divisor)
        if all(_fits(hypothesis, e, "float32") for e in executions):
            return mode, divisor
    return None


def _hypotheses(
    executions: Sequence[Execution], modes: Sequence[str]
) -> Iterator[tuple[str, float | None]]:
    for mode in modes:
        if not MODES[mode].needs_divisor:
            yield mode, None
    first = executions[0]
    assert first.weights is not None
    weight = float(first.weights[0])
    if "constant" in modes and weight > 0:
        # 1 / (L * N) on every token: the divisor is whatever makes the first token right.
        exact = 1 / (Fraction(weight) * first.case.step.num_rollouts)
        yield "constant", float(exact.limit_denominator(1000))


def precision_of(subject: Subject, executor: Executor) -> str:
    """``float32`` when float64 losses get weights that only float32 arithmetic explains.

    An error that remains where float32 is exact (all counts and the divisor powers of two) is not
    rounding, unless the weights themselves are float32 numbers, as with a divisor in the code.
    """
    executions = executor.run(subject, distinguishing_cases())
    exactly = subject if subject.divisor is None else subject.claiming(divisor=_EXACT_DIVISOR)
    exact = executor.run(exactly, [_trivial(_EXACT_STEP)])[0]
    if all(_fits(subject, e, "float64") for e in executions) and _fits(exactly, exact, "float64"):
        return "float64"
    if not all(_fits(subject, e, "float32") for e in executions):
        return "float64"
    if _fits(exactly, exact, "float64") or all(map(_is_float32, executions)):
        return "float32"
    return "float64"


def _is_float32(execution: Execution) -> bool:
    weights = execution.weights
    return weights is not None and bool((weights == weights.astype(np.float32)).all())


def _fits(subject: Subject, execution: Execution, precision: str) -> bool:
    expected = subject.expected(execution.case.step)
    if execution.weights is None or expected is None:
        return False
    roundings = subject.roundings_on(execution.case.step)
    off = worst_weight(execution.weights, expected, roundings, precision)
    return off is None or off.accumulated


def _trivial(text: str) -> Case:
    step = parse_step(text)
    return Case(step, Layout.trivial(len(step.samples)), plain_losses(step))
