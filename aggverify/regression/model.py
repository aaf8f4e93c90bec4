"""A comparison of two documents as data: one change for each thing that differs, or stays.

``python -m aggverify.regression.model`` prints its JSON schema.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from aggverify import codec
from aggverify.codec import Double, Integer, Part, Text
from aggverify.codes.identity import About
from aggverify.escape import json_text
from aggverify.model import Environment, FindingRecord

SCHEMA: Literal[3] = 3
CONFORMS, FINDINGS, NO_JUDGEMENT = 0, 1, 2


class Kind(StrEnum):
    """What became of something, the worst first."""

    COVERAGE_LOST = "coverage-lost"
    NEW_FAILURE = "new-failure"
    CHANGED_FAILURE = "changed-failure"
    EXPIRED = "expired"
    ERROR = "error"
    PRECISION_WORSE = "precision-worse"
    NEW_HAZARD = "new-hazard"
    NEW_WARNING = "new-warning"
    KNOWN = "known"
    FIXED = "fixed"
    UNCHANGED = "unchanged"

    def exit(self, *, strict: bool) -> int:
        """Return the exit code of a comparison in which this is the worst."""
        if self is Kind.COVERAGE_LOST or self in FAILURES or (strict and self is Kind.NEW_HAZARD):
            return FINDINGS
        return NO_JUDGEMENT if self is Kind.ERROR else CONFORMS


FAILURES = (Kind.NEW_FAILURE, Kind.CHANGED_FAILURE, Kind.EXPIRED)
QUIET = (Kind.KNOWN, Kind.FIXED, Kind.UNCHANGED)
"""Changes that need no attention."""


class Also(Part, frozen=True):
    """Another finding of the same cause."""

    code: str
    title: str
    id: str


class Change(Part, frozen=True):
    """One thing that differs between base and head, or that stays."""

    kind: Kind
    about: About | None
    what: str
    """The finding's code and title, or what is no longer verified."""
    base: str
    head: str
    """What each side reports of it, in a few words."""
    sentence: str
    """What it does: without its subject, which is what is merged; of an error, why."""
    more: Text
    """Further lines of an error."""
    finding: FindingRecord | None
    """As the head shows it; of what is fixed, as the base did."""
    also: tuple[Also, ...]
    base_weights: tuple[Double, ...] | None = None
    head_weights: tuple[Double, ...] | None = None
    """Of every response token of the finding's case on either side, where they are known."""


class Side(Part, frozen=True):
    """Where one of the two documents comes from."""

    name: str
    aggverify: str
    environment: Environment
    exit: Integer


class Comparison(Part, frozen=True):
    """Everything that ``compare`` found, the worst first."""

    schema: Literal[3]
    exit: Integer
    strict: bool
    base: Side
    head: Side
    banner: tuple[str, ...]
    """In what the two runs differ apart from the reducer: it may be why results do."""
    changes: tuple[Change, ...]

    def of(self, *kinds: Kind) -> list[Change]:
        """Return the changes of these kinds."""
        return [change for change in self.changes if change.kind in kinds]


def harmless(comparison: Comparison) -> Comparison:
    """Return the same with every text escaped and, where one is due, on one line."""
    return codec.sanitize(comparison)


def render(comparison: Comparison) -> str:
    """Return the comparison as JSON."""
    return json_text(codec.plain(comparison), indent=1) + "\n"


def schema() -> str:
    """``schema/comparison.json``: the tests hold that file to this."""
    return codec.schema("aggverify comparison", Comparison)


if __name__ == "__main__":
    print(schema(), end="")
