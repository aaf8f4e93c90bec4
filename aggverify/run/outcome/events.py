"""What a run reports to its listeners.

Frozen data; handlers plug in without the run knowing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aggverify import model
from aggverify.checks import Finding
from aggverify.execution.subject import Subject
from aggverify.run.outcome.verdict import ReportedFinding, RunVerdict


class Phase(StrEnum):
    """What a run is at: smoke first, then for each check stream or special, and confirm."""

    SMOKE = "smoke"
    """The simplest step, before any check."""
    STREAM = "stream"
    """Listed and drawn cases, which all checks without cases of their own judge."""
    SPECIAL = "special"
    """Cases of one check alone, run as it needs them."""
    CONFIRM = "confirm"
    """The finding on smaller cases, and again in fresh worlds."""


@dataclass(frozen=True, slots=True)
class SubjectChosen:
    """Candidate, convention, engine and mode are settled; checks come next."""

    subject: Subject
    checks: int


@dataclass(frozen=True, slots=True)
class CheckStarted:
    """A check begins."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Some cases more were executed."""

    check: str
    executed: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing more will be reported for a while, for this reason."""

    what: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What a large step took: seconds by the clock, and bytes of the rank that held most."""

    check: str
    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """A check is done, or is not run."""

    summary: model.CheckRecord


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding is confirmed in fresh ranks; its diagnosis follows with ``ConfirmedFinding``."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class ConfirmedFinding:
    """A confirmed, shrunk and diagnosed finding."""

    report: ReportedFinding


@dataclass(frozen=True, slots=True)
class Finished:
    """One subject's verdict is complete."""

    verdict: RunVerdict


Event = (
    SubjectChosen
    | CheckStarted
    | Progress
    | Waiting
    | Measured
    | CheckFinished
    | Seen
    | ConfirmedFinding
    | Finished
)
