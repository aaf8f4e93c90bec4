"""How much of the cases of every check there is time for: all, or of each the same part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean

from aggverify.execution.run_spec import as_run_spec
from aggverify.run.planning.first_cases import first_cases
from aggverify.run.planning.plan import PlannedCheck

SURE = 10.0
"""Seconds of a search after which it is asked whether the time is enough: only a slow reducer gets
there. A time that a person gives is asked about from the start."""


def planned_steps(entry: PlannedCheck) -> int:
    """Return the steps of all cases of a check, where drawn ones take as many as listed ones do.

    Cases that another check has run as well count as if they were run again.
    """
    check, subject, space = entry.check, entry.subject, entry.space
    if entry.instead is not None or space is None:
        return 0
    first = int(check.control_first and subject.has_oracle)
    steps = [
        sum(1 + len(as_run_spec(one).before) for one in check.variants(case)[first:])
        for case in first_cases(check, subject, space)
        if case in space
    ]
    return sum(steps) + ceil(entry.examples * (fmean(steps) if steps else 1))


@dataclass(slots=True)
class Amount:
    """What checks have taken that found nothing, and so what those to come will take."""

    asked: bool
    """Whether a person limits the time."""
    seconds: float = 0.0
    steps: int = 0
    _planned: dict[str, int] = field(default_factory=dict)

    def add(self, seconds: float, steps: int) -> None:
        """Note what one check has taken."""
        self.seconds += seconds
        self.steps += steps

    def part(self, entries: Sequence[PlannedCheck], left: float) -> tuple[float, float]:
        """Return the part of these checks' cases that ``left`` seconds are enough for, at most 1.

        And the seconds at most for the first of them: half of all, or its share where that is more.
        """
        if not self.seconds or not (self.asked or self.seconds > SURE):
            return 1.0, left / 2
        steps = [self._steps(entry) for entry in entries]
        needed = max(sum(steps), 1) * self.seconds / max(self.steps, 1)
        return min(1.0, max(0.0, left) / needed), left * max(0.5, steps[0] / max(sum(steps), 1))

    def _steps(self, entry: PlannedCheck) -> int:
        name = entry.check.name
        if name not in self._planned:
            self._planned[name] = planned_steps(entry)
        return self._planned[name]
