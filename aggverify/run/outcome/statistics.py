"""How sharp a verdict was: errors over their bounds, and the smallest factor it could catch."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import median

import numpy as np

from aggverify.checks import Finding
from aggverify.checks.comparison import as_floats, lowest_precision, margin
from aggverify.execution.executed import Execution, Weights
from aggverify.execution.subject import Subject
from aggverify.model import Margin, ReportedLoss, SizeMargin
from aggverify.oracles.bounds import PRECISIONS, caught, scalar_bound, weight_bound
from aggverify.run.outcome.coverage_observer import CoverageObserver


@dataclass(slots=True)
class _Sharpness:
    """What one precision allowed to be seen."""

    worst: float = 0.0
    """Largest error over bound; more than 1 only where running sums explain it."""
    by_size: dict[int, float] = field(default_factory=dict)
    """The same by size: steps of at most so many tokens, a power of 4."""
    smallest_weight: float = math.inf
    sparse: float = math.inf
    """Of the reported loss where one token alone has a loss; infinite if never tried."""
    dense: float = math.inf
    """The same where many have one, on the best such step; infinite is vacuous."""
    dense_steps: int = 0
    vacuous_steps: int = 0
    """Of the dense steps, those whose bound could not have caught any factor."""


SLOW_SECONDS = 0.01
"""A call of the candidate that takes this long is reported."""


@dataclass(slots=True)
class Pace:
    """How long calls of the candidate took, where no other rank had to be waited for."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    """As a whole it is copied for every check, which takes long of a list."""

    def add(self, executions: Sequence[Execution]) -> None:
        """Note executions on one rank."""
        alone = (e for e in executions if e.weights is not None and e.case.layout.world_size == 1)
        self.seconds.extend(e.call_seconds for e in alone)

    @property
    def milliseconds(self) -> int | None:
        """The median call to one digit, so that runs rarely differ in it; None if not slow."""
        middle = median(self.seconds) if self.seconds else 0.0
        return int(float(f"{1000 * middle:.0e}")) if middle >= SLOW_SECONDS else None


@dataclass(slots=True)
class RunStatistics:
    """What accumulates over all checks of a subject, by the lowest precision on the path."""

    observer: CoverageObserver = field(default_factory=CoverageObserver)
    pace: Pace = field(default_factory=Pace)
    _by_precision: dict[str, _Sharpness] = field(default_factory=dict)

    def add(
        self, subject: Subject, executions: Sequence[Execution], *, scalars: bool = False
    ) -> None:
        """Note executions that passed; ``scalars`` where their reported loss was judged too."""
        for execution in executions:
            expected = subject.expected(execution.case.step)
            if expected is None or execution.weights is None:
                continue
            precision = lowest_precision(subject, execution.case)
            roundings = subject.roundings_on(execution.case.step)
            worst = margin(execution.weights, expected, roundings, precision)
            if worst > 1:
                continue  # another check's finding
            seen = self._by_precision.setdefault(precision, _Sharpness())
            seen.worst = max(seen.worst, worst)
            size = _power_of_4(execution.case.step.num_unmasked)
            seen.by_size[size] = max(seen.by_size.get(size, 0.0), worst)
            rounded = as_floats(expected)
            kept = rounded[rounded != 0]
            if kept.size:
                seen.smallest_weight = min(seen.smallest_weight, float(np.abs(kept).min()))
            if scalars:
                _add_scalar(seen, subject, execution, rounded, precision)

    def needs(self, subject: Subject, finding: Finding) -> None:
        """Note a deviation beyond its bound that is no more than rounding of running sums."""
        assert finding.error is not None and finding.bound
        over = float(finding.error / finding.bound)
        self.observer.over_bound = max(self.observer.over_bound, over)
        if finding.token is not None:
            precision = lowest_precision(subject, finding.case)
            seen = self._by_precision.setdefault(precision, _Sharpness())
            seen.worst = max(seen.worst, over)

    def margins(self, subject: Subject) -> tuple[Margin, ...]:
        """One summary per precision, by name."""
        found = []
        for precision, seen in sorted(self._by_precision.items()):
            weight = Fraction(seen.smallest_weight if seen.smallest_weight < math.inf else 1.0)
            bound = weight_bound(weight, subject.roundings_on(), PRECISIONS[precision])
            loss = ReportedLoss(seen.sparse, seen.dense, seen.dense_steps, seen.vacuous_steps)
            sizes = tuple(SizeMargin(*pair) for pair in sorted(seen.by_size.items()))
            smallest = float(caught(bound, weight))
            found.append(Margin(precision, seen.worst, smallest, loss, sizes))
        return tuple(found)


def _power_of_4(tokens: int) -> int:
    """Return the smallest power of 4 that is not less."""
    size = 1
    while size < tokens:
        size *= 4
    return size


def _add_scalar(
    seen: _Sharpness, subject: Subject, execution: Execution, weights: Weights, precision: str
) -> None:
    """Note the smallest factor on this step's scalar that its bound would have caught."""
    kept = weights != 0
    terms = weights[kept] * np.array(execution.case.losses)[kept]
    number = int(np.count_nonzero(terms))
    if not number:
        return
    magnitude, exact = Fraction(float(np.abs(terms).sum())), Fraction(float(terms.sum()))
    roundings = subject.roundings_on(execution.case.step) + 1
    bound = scalar_bound(magnitude, number - 1, roundings, PRECISIONS[precision])
    factor = float(caught(bound, exact))
    if number == 1:
        seen.sparse = min(seen.sparse, factor)
        return
    seen.dense = min(seen.dense, factor)
    seen.dense_steps += 1
    seen.vacuous_steps += math.isinf(factor)
