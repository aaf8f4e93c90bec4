"""Conditions of sizes that went one way only, and how far they were from going the other: what a
check draws cases towards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aggverify.execution.executed import Execution
from aggverify.steps import kinds
from aggverify.steps.case import Case
from aggverify.steps.kinds import SHARDED


@dataclass(frozen=True, slots=True)
class Goal:
    """An outcome of a condition that no case has had, or none on several ranks."""

    outcome: int
    sharded: bool

    @property
    def wanted(self) -> tuple[int, bool]:
        """As a case has it."""
        return self.outcome, self.sharded

    @property
    def seen(self) -> tuple[int, bool]:
        """The other outcome, that was there."""
        return self.outcome ^ 1, self.sharded


@dataclass(slots=True)
class Nearest:
    """Of each outcome the case that was nearest to the other one, on any ranks and on several."""

    cases: dict[tuple[int, bool], Case] = field(default_factory=dict)
    last: Mapping[tuple[int, bool], float] = field(default_factory=dict)
    """The distances of the case that was added last."""
    had: frozenset[tuple[int, bool]] = frozenset()
    """The outcomes of that one."""
    _least: dict[tuple[int, bool], float] = field(default_factory=dict)

    def add(self, executions: Iterable[Execution]) -> None:
        """Note what is known of these."""
        for ran in executions:
            on = {False, ran.case.layout.world_size > 1}
            self.had = frozenset((n, several) for n in ran.outcomes for several in on)
            self.last = {(n, several): far for n, far in ran.distances.items() for several in on}
            for what, far in self.last.items():
                if what not in self.cases or far < self._least[what]:
                    self.cases[what], self._least[what] = ran.case, far

    def goals(self, outcomes: Mapping[int, int]) -> Iterator[Goal]:
        """What is missing of these, which ran on such kinds of case; first what has a distance that
        is known, and of that what never ran."""
        found: list[Goal] = []
        for sharded, bit in ((False, kinds.ALL), (True, kinds.written([SHARDED]))):
            seen = [n for n, on in outcomes.items() if on & bit]
            missing = (Goal(n ^ 1, sharded) for n in sorted(seen) if n ^ 1 not in seen)
            found += (goal for goal in missing if goal.seen in self.cases)
        yield from sorted(found, key=lambda goal: not self.is_known(goal))

    def is_known(self, goal: Goal) -> bool:
        """Whether a distance from it is."""
        return self._least[goal.seen] < math.inf

    def distance(self, goal: Goal) -> float | None:
        """Of the last case from it, none where that case has it; None where it is not known."""
        if goal.wanted in self.had:
            return 0.0
        apart = self.last.get(goal.seen, math.inf)
        return apart if apart < math.inf else None
