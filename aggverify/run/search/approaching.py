"""Conditions of sizes that went one way only, and how far they were from going the other: what a
check draws cases towards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aggverify.checks import Finding
from aggverify.execution.executed import Execution
from aggverify.generation.approaching import alike, fixed
from aggverify.generation.space import Space
from aggverify.run.search.drawing import Enough, approach
from aggverify.steps import kinds
from aggverify.steps.case import Case
from aggverify.steps.kinds import SHARDED
from aggverify.trainer.conditions import Condition

TOWARDS = 64
"""Cases at most that are drawn towards one outcome of a condition."""
HOPELESS = 12
"""Of these, as many as may be no nearer than any before; all where no distance is known."""
ARRIVED = 10
"""Cases with that outcome that are enough: on one of them a wrong branch may be right."""


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
    outcomes: dict[Case, frozenset[int]] = field(default_factory=dict)
    """Those of every case."""
    _least: dict[tuple[int, bool], float] = field(default_factory=dict)

    def add(self, executions: Iterable[Execution]) -> None:
        """Note what is known of these."""
        for ran in executions:
            self.outcomes[ran.case] = ran.outcomes
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


@dataclass(slots=True)
class Approaching:
    """Draws towards what is missing, one goal after another."""

    space: Space
    judge: Callable[[Case], Finding | None]
    """Runs a case, so that ``nearest`` and ``ran`` know of it."""
    nearest: Nearest
    ran: Mapping[int, int]
    """Outcomes with the kinds of case that they ran on."""
    seed: int
    goal: Goal | None = None
    """The one on the way to which there was a finding."""
    _done: set[Goal] = field(default_factory=set)
    _drawn: set[Case] = field(default_factory=set)
    _explored: set[tuple[object, ...]] = field(default_factory=set)

    def failure(self, most: int) -> Finding | None:
        """The first finding among so many cases."""
        while len(self._drawn) < most:
            left = (goal for goal in self.nearest.goals(self.ran) if goal not in self._done)
            if (goal := next(left, None)) is None:
                return None
            self._done.add(goal)
            near = self.nearest.cases[goal.seen]
            if fixed(near) in self._explored and near not in self._drawn:
                continue  # of what was drawn like it for another goal, nothing was nearer
            self._explored.add(fixed(near))
            found = self._towards(goal, near, min(most - len(self._drawn), TOWARDS))
            if found is not None:
                self.goal = goal
                return found
        return None

    def _towards(self, goal: Goal, near: Case, most: int) -> Finding | None:
        found: list[Finding] = []
        arrived = vain = 0

        def look(case: Case) -> float | Finding | None:
            nonlocal arrived, vain
            self._drawn.add(case)
            finding = self.judge(case)
            if finding is not None:
                found.append(finding)
                return finding
            arrived += goal.wanted in self.nearest.had
            vain += not arrived and self.nearest.cases[goal.seen] is near
            if not found and (arrived >= ARRIVED or vain >= HOPELESS):
                raise Enough
            return self.nearest.distance(goal)

        approach(alike(self.space, near), look, max_examples=most, seed=self.seed)
        return min(found, key=lambda f: f.case.size, default=None)

    def placed(self, found: Finding, conditions: Sequence[Condition]) -> Finding:
        """With the condition that was drawn towards, where its case went that way."""
        goal = self.goal
        if goal is None or goal.outcome not in self.nearest.outcomes.get(found.case, ()):
            return found
        condition = conditions[goal.outcome // 2]
        truth = "true" if goal.outcome % 2 else "false"
        where = (
            f"where `{condition.text}` is {truth} in line {condition.line}, as on no listed step"
            f"{' on several ranks' if goal.sharded else ''}"
        )
        return replace(found, message="; ".join(filter(None, (found.message, where))))
