"""What will be run: every check of a subject with its space, or the reason why it is not run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
from msgspec import structs

from aggverify.checks import CHECKS, Check
from aggverify.codes.state import State
from aggverify.execution.budget import MAX_WORLD, MIN_EXAMPLES
from aggverify.execution.subject import DISCLAIMED, Refused, Subject
from aggverify.generation.space import Space, sizes


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """One check on one subject. ``space`` is None only where it is not run."""

    check: Check
    subject: Subject
    space: Space | None
    instead: State | None = None
    """State reported for a skipped check."""
    why_not: str | None = None
    """For what reason, where the state is not enough."""

    def becoming(self, state: State, why_not: str | None) -> PlannedCheck:
        """Return the same entry, not to be run for that reason."""
        return replace(self, instead=state, why_not=why_not)

    @property
    def examples(self) -> int:
        """Cases drawn at most; 0 for a check that runs all of its own cases."""
        if self.check.only is not None:
            return 0
        budget, most = self.subject.claim.budget, self.check.max_examples
        if self.check.looks_at_branches:
            return budget.branch_examples
        few = math.inf if most is None else math.ceil(most * budget.part)
        return int(min(budget.examples, few))

    @property
    def most_examples(self) -> int:
        """Cases drawn at most where otherwise fewer than MIN_EXAMPLES are judged.

        A check that is meant to run fewer draws no more for it.
        """
        budget = self.subject.claim.budget
        if self.check.only is not None or self._most < MIN_EXAMPLES or not budget.topped_up:
            return self.examples
        return max(self.examples, min(budget.examples, self._most))

    @property
    def least(self) -> int:
        """Cases that must have come to a result before it passes, if there are as many.

        No fewer where a profile draws only a part of them.
        """
        if self.check.only is not None:
            return 0
        return min(MIN_EXAMPLES, self.subject.claim.budget.examples, self._most)

    @property
    def _most(self) -> int:
        most = self.check.max_examples
        return self.subject.claim.budget.examples if most is None else most

    def to_json(self) -> dict[str, Any]:
        """Plain data; of the space the fields other than the default."""
        usual = Space()
        space = None
        if self.space is not None:
            values = {f.name: getattr(self.space, f.name) for f in fields(Space)}
            space = {k: v for k, v in values.items() if v != getattr(usual, k)}
        return {
            "check": self.check.name,
            "title": self.check.title,
            "tests": self.check.tests,
            "examples": self.examples,
            "space": space,
            "instead": self.instead,
            "why_not": self.why_not,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All entries of one subject, in the order they are run."""

    subject: Subject
    entries: tuple[PlannedCheck, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data: the claim, what was found out before, and every entry."""
        without_source = (structs.replace(each, source=()) for each in self.subject.found.functions)
        known = self.subject.knowing(functions=tuple(without_source))
        return {
            "claim": self.subject.claim.to_json(),
            "found": msgspec.to_builtins(known.found),
            "entries": [entry.to_json() for entry in self.entries],
        }


def plan(subject: Subject, checks: Iterable[Check] = CHECKS) -> Plan:
    """Return the plan of a subject; what earlier checks find out may still shorten it."""
    asked = tuple(checks)
    mine = tuple(check for check in asked if check.of_calls == subject.only_called)
    if asked and not mine:  # nothing else was asked for
        left_out = (
            PlannedCheck(c, subject, None, State.LEFT_OUT, why_of_another_kind(c)) for c in asked
        )
        return Plan(subject, tuple(left_out))
    return Plan(subject, tuple(_entry(check, subject) for check in mine))


def why_of_another_kind(check: Check) -> str:
    """Return why a check of calls is left out for a reducer, and others for what only has calls."""
    return "the function reduces losses" if check.of_calls else "the function reduces no losses"


def looking_at_branches(subject: Subject, skip: Collection[str] = ()) -> tuple[PlannedCheck, ...]:
    """Of all checks but these those that are also judged on every branch of the subject."""
    looking = [check for check in CHECKS if check.on_branches and check.name not in skip]
    found = plan(subject, looking).entries
    return tuple(e for e in found if e.instead is None and e.space is not None)


def _entry(check: Check, subject: Subject) -> PlannedCheck:
    space = check.space(subject)
    entry = PlannedCheck(check, subject, space)
    if not _has_layouts(space):
        if (refused := _refused(check, subject)) is not None:
            return entry.becoming(State.REFUSED, f"{refused.what}: {refused.words!r}")
        if subject.without and _has_layouts(check.space(subject.claiming(without=frozenset()))):
            return entry.becoming(State.NOT_CLAIMED, DISCLAIMED)
    if space is None and check.not_applicable is None:
        if check.space(subject.claiming(max_world=MAX_WORLD)) is not None:
            return entry.becoming(State.LEFT_OUT, _no_layout(subject.max_world))
        return entry.becoming(State.NOT_CLAIMED, None)
    why_not = _why_not(check, subject, space)
    return entry if why_not is None else entry.becoming(State.LEFT_OUT, why_not)


def _has_layouts(space: Space | None) -> bool:
    return space is not None and bool(sizes(space))


def _refused(check: Check, subject: Subject) -> Refused | None:
    """Return what the candidate refuses and the check is about."""
    for one in subject.refused:
        others = tuple(r for r in subject.refused if r != one)
        if _has_layouts(check.space(subject.knowing(refused=others))):
            return one
    unrefused = check.space(subject.knowing(refused=()))
    return subject.refused[0] if subject.refused and _has_layouts(unrefused) else None


def _why_not(check: Check, subject: Subject, space: Space | None) -> str | None:
    if space is None:
        return check.not_applicable
    if subject.nonlinear and check.linear_only:
        return "has no meaning for a non-linear objective"
    if check.thorough and not subject.claim.budget.thorough:
        return "only with --profile thorough"
    if check.only_with not in ("", subject.claim.budget.step):
        return f"only with --step {check.only_with}"
    if not sizes(space):
        return _no_layout(space.max_world)
    return None


def _no_layout(ranks: int) -> str:
    return f"no such layout on {ranks} rank{'s' * (ranks > 1)}"
