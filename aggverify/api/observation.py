"""What one step did to every token: expected and effective weights, drawn where it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.escape import clean
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.report.findings import drawn
from aggverify.report.formatting import drawing, fraction, number, ratio, token_name
from aggverify.steps.case import Case
from aggverify.world import Fault
from aggverify.world.collectives import Collective


@dataclass(frozen=True, slots=True)
class Observation:
    """One executed case. Weights are flat, one per response token in the step's order.

    ``weights``: the gradient of the update by each token's loss, the engine included; None where
    the ranks came to no result, and ``fault`` has what they did instead. ``expected``: the mode's
    exact weights, None without a mode. ``value``: the reported step scalar, exact in the ranks'
    local losses. ``worst``: flat index of the token furthest beyond its proven bound, None where
    all are within. ``counts``: token counts, per rank and micro-batch, flat. ``traces``: of each
    rank, the collectives it issued, in order; those without a ``place`` are the engine's own.
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
    traces: tuple[tuple[Collective, ...], ...] = ()

    @property
    def conforms(self) -> bool | None:
        """Whether every weight is within its bound; None where there is nothing to compare."""
        if self.fault is not None:
            return False
        return None if self.expected is None else self.worst is None

    @property
    def expected_value(self) -> Fraction | None:
        """The mode's exact step scalar; None without a mode, or where losses are not finite."""
        if self.expected is None or not all(map(math.isfinite, self.case.losses)):
            return None
        pairs = zip(self.expected, self.case.losses, strict=True)
        return sum((weight * Fraction(loss) for weight, loss in pairs), Fraction(0))

    def __str__(self) -> str:
        return "\n".join(map(clean, self._lines()))

    @property
    def _title(self) -> str:
        outcome = {True: "conforms", False: "does not conform", None: "nothing is expected"}
        return f"{self.mode or 'no mode'}, engine {self.engine}: {outcome[self.conforms]}"

    def _lines(self) -> Iterator[str]:
        yield self._title
        yield from drawing(drawn(self.case))
        yield from self._weight_lines()
        yield from self._facts()

    def _facts(self) -> Iterator[str]:
        """Yield what was observed apart from the weights."""
        if self.weights is None:
            yield "no result: " + (self.fault.message if self.fault else "")
        if self.value is not None:
            wanted = self.expected_value
            more = "" if wanted is None else f", expected {number(float(wanted))}"
            yield f"reported loss {number(float(self.value))}{more}"
        for ranks, text in _issued(self.traces):
            yield f"rank{'s' if ',' in ranks else ''} {ranks}: {text}"

    def _weight_lines(self) -> Iterator[str]:
        step = drawn(self.case)
        if self.weights is None:
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
        """Return a notebook's picture: a row a sample, coloured by actual over expected weight."""
        from aggverify.report.html_page import observed

        pairs = None
        if self.weights is not None:
            expected = self.expected or (None,) * len(self.weights)
            pairs = tuple(zip(expected, self.weights, strict=True))
        step = drawn(self.case)
        placed, *_ = drawing(step)
        facts = [placed, *self._facts()]
        return observed(self._title, self.conforms, facts, step, pairs, self.worst)


def _issued(traces: Sequence[Sequence[Collective]]) -> Iterator[tuple[str, str]]:
    """Yield the candidate's own collectives, each once with the ranks that issued it so."""
    found: dict[tuple[int, Collective], list[int]] = {}
    for rank, trace in enumerate(traces):
        for n, call in enumerate(call for call in trace if call.place):
            found.setdefault((n, call), []).append(rank)
    for (_, call), ranks in sorted(found.items(), key=lambda item: (item[0][0], item[1])):
        among = "" if tuple(ranks) == call.ranks else call.text.removeprefix(call.call)
        yield ",".join(map(str, ranks)), f"{call.call}{among} ({call.place})"


def observation(subject: Subject, execution: Execution) -> Observation:
    """Return the outcome of a case, with what the subject's mode expects."""
    case, weights = execution.case, execution.weights
    expected = subject.expected(case.step)
    mismatch = None
    if weights is not None and expected is not None:
        precision = lowest_precision(subject, case)
        roundings = subject.roundings_on(case.step)
        mismatch = worst_weight(weights, expected, roundings, precision)
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
        traces=execution.traces,
    )
