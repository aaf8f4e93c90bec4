"""What will be run: every check of a subject with its space, or the reason why it is not run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from aggverify.checks import CHECKS, Check
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space, sizes


@dataclass(frozen=True, slots=True)
class Entry:
    """One check on one subject. ``space`` is None only where ``why_not`` says something."""

    check: Check
    subject: Subject
    space: Space | None
    why_not: str | None = None

    def skipped(self, why_not: str) -> Entry:
        """The same entry, not to be run for that reason."""
        return replace(self, why_not=why_not)

    @property
    def examples(self) -> int:
        """Cases drawn at most; 0 for a check that runs all of its own cases."""
        if self.check.only is not None:
            return 0
        budget = self.subject.claim.budget
        return min(budget.examples, self.check.max_examples or budget.examples)

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
            "why_not": self.why_not,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All entries of one subject, in the order they are run."""

    subject: Subject
    entries: tuple[Entry, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data: the claim, what was found out before, and every entry."""
        return {
            "claim": self.subject.claim.to_json(),
            "found": asdict(self.subject.found),
            "entries": [entry.to_json() for entry in self.entries],
        }


def plan(subject: Subject, checks: Iterable[Check] = CHECKS) -> Plan:
    """The plan of a subject; what earlier checks find out may still shorten it."""
    return Plan(subject, tuple(_entry(check, subject) for check in checks))


def _entry(check: Check, subject: Subject) -> Entry:
    space = check.space(subject)
    return Entry(check, subject, space, _why_not(check, subject, space))


def _why_not(check: Check, subject: Subject, space: Space | None) -> str | None:
    if space is None:
        return check.unclaimed
    if subject.nonlinear and check.linear_only:
        return "says nothing about a non-linear objective"
    if check.thorough and not subject.claim.budget.thorough:
        return "only with --profile thorough"
    if not sizes(space):
        return f"no such layout on {space.max_world} rank{'s' * (space.max_world > 1)}"
    return None
