"""What a job can come to: replies of every rank, or a fault told as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from aggverify.errors import AggverifyError
from aggverify.world.backends import Backend

FaultKind = Literal["exception", "died", "blocked", "runaway", "diverged"]

_NOTHING: Mapping[int, Any] = MappingProxyType({})


class PoolError(AggverifyError):
    """The pool itself cannot work here: no torch, wrong platform, closed, launcher gone."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call of the handler on every rank of a world.

    ``payload``: JSON-able. ``cpu_seconds``: a rank's own CPU time before it counts as running
    away, None for the pool's default; give more to a job known to be large. ``together``: may
    share a dispatch with others like it, by the handler's ``together``; should anything at all be
    wrong with what comes back, each runs again by itself. ``fresh``: by ranks that have run no job
    before; the world is replaced if it has. ``backend``: what its ranks are joined by, None for the
    pool's.
    """

    world: int
    payload: Mapping[str, Any]
    cpu_seconds: float | None = None
    together: bool = False
    fresh: bool = False
    backend: Backend | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the handler returned on one rank; ``changes`` lists the global state it altered."""

    data: dict[str, Any]
    blob: bytes
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replies:
    """All ranks answered; ``replies[r]`` is rank r's."""

    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A job that did not come back from every rank.

    ``rank``: the one at fault as far as can be told, else None. ``traceback``: of an exception,
    the code under test only. ``stacks``, ``collectives``, ``output``: per rank, where known: its
    Python stack when it was stopped, the collective it was in, the tail of what it printed.
    ``traces``: per rank, the collectives it issued in this job. ``changes``: per rank, the global
    state it had left changed. ``first``: the ranks had finished no job before.
    """

    kind: FaultKind
    rank: int | None
    message: str
    traceback: str = ""
    stacks: Mapping[int, str] = field(default_factory=lambda: _NOTHING)
    exit_status: int | None = None
    collectives: Mapping[int, str] = field(default_factory=lambda: _NOTHING)
    traces: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    output: Mapping[int, str] = field(default_factory=lambda: _NOTHING)
    changes: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    first: bool = False


@dataclass(frozen=True, slots=True)
class TemplateFailure:
    """The handler could not be constructed: an exception, the process died or hung at
    import, or the import initialised CUDA."""

    kind: Literal["exception", "died", "blocked", "runaway", "cuda"]
    message: str
    traceback: str = ""
    output: str = ""
    exit_status: int | None = None


Outcome = Replies | Fault
