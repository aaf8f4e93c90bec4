"""What comes back from ranks: replies, or a fault as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FaultKind = Literal["exception", "died", "blocked", "runaway", "diverged"]


@dataclass(frozen=True, slots=True)
class Job:
    """One payload for every rank of a world of that size."""

    world: int
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What one rank's handler returned."""

    data: dict[str, Any]
    blob: bytes


@dataclass(frozen=True, slots=True)
class Replies:
    """A job that every rank finished, in rank order."""

    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A job that some rank did not finish.

    ``rank`` is the cause where one can be named; ``stacks`` maps ranks to Python stacks.
    """

    kind: FaultKind
    rank: int | None
    message: str
    traceback: str = ""
    stacks: Mapping[int, str] = field(default_factory=dict)


Outcome = Replies | Fault


@dataclass(frozen=True, slots=True)
class TemplateFailure:
    """A handler that could not be constructed: the candidate's import failed or died."""

    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long ranks may take: seconds of a rank's own CPU time for one job."""

    cpu_seconds: float = 2.0
