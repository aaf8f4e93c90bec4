"""What one step did to every token: expected and effective weights, drawn where it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.report.document import drawn
from aggverify.report.drawing import drawing, fraction, number, ratio, token_name
from aggverify.steps.case import Case
from aggverify.world import Fault


@dataclass(frozen=True, slots=True)
class Observation:
    """One executed case. Weights are flat, one per response token in the step's order.

    ``weights``: the gradient of the update by each token's loss, the engine included; None where
    the ranks came to no result, and ``fault`` says what they did instead. ``expected``: the mode's
    exact weights, None without a mode. ``value``: the reported step scalar, exact in the ranks'
    local losses. ``worst``: flat index of the token furthest beyond its proven bound, None where
    all are within. ``counts`` and ``logs``: token counts, per rank and micro-batch, flat.
    """

    case: Case
    mode: str | None
    engine: str
    weights: tuple[float, ...] | None
    expected: tuple[Fraction, ...] | None
    value: Fraction | None
    counts: tuple[int, ...]
    worst: int | None
    fault: Fault | None = None

    @property
    def conforms(self) -> bool | None:
        """Whether every weight is within its bound; None where there is nothing to compare."""
        if self.fault is not None:
            return False
        return None if self.expected is None else self.worst is None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        step = drawn(self.case)
        yield f"{self.mode or 'no mode'}, engine {self.engine}"
        yield from drawing(step)
        if self.weights is None:
            yield "no result: " + (self.fault.message if self.fault else "")
            return
        for token, weight in enumerate(self.weights):
            words = f"{token_name(step, token)}: {number(weight)}"
            if self.expected is not None:
                times = ratio(self.expected[token], weight)
                right = times == 1 or (times is None and weight == 0)
                words += f"    expected {fraction(self.expected[token])}"
                words += "" if right or times is None else f" x {fraction(times)}"
            yield words + ("    <- beyond its bound" if token == self.worst else "")

    def _repr_html_(self) -> str:
        """A notebook's picture: one row a sample, weights coloured by actual over expected."""
        from aggverify.report.page import observed

        pairs = None
        if self.weights is not None:
            expected = self.expected or tuple(map(_as_it_is, self.weights))
            pairs = tuple(zip(expected, self.weights, strict=True))
        title = f"{self.mode or 'no mode'}, engine {self.engine}"
        return observed(title, drawn(self.case), pairs, self.worst)


def _as_it_is(weight: float) -> Fraction:
    """What is shown as expected where no mode says anything."""
    return Fraction(number(weight)) if math.isfinite(weight) else Fraction(0)


def observation(subject: Subject, execution: Execution) -> Observation:
    """What came of a case, beside what the subject's mode expects."""
    case, weights = execution.case, execution.weights
    expected = subject.expected(case.step)
    mismatch = None
    if weights is not None and expected is not None:
        precision = lowest_precision(subject, case)
        mismatch = worst_weight(weights, expected, subject.roundings, precision)
    return Observation(
        case=case,
        mode=subject.mode_name,
        engine=subject.engine.name,
        weights=None if weights is None else tuple(weights.tolist()),
        expected=expected,
        value=execution.value,
        counts=execution.counts,
        worst=None if mismatch is None else mismatch.token,
        fault=execution.failure,
    )
