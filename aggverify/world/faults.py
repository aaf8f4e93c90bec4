"""What a job can come to: replies of every rank, or a fault as data."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from aggverify import codec
from aggverify.errors import AggverifyError
from aggverify.world.backends import Backend
from aggverify.world.candidate_errors import Raised
from aggverify.world.collectives import Collective
from aggverify.world.exits import signal_name
from aggverify.world.frames import Stack

FaultKind = Literal["exception", "died", "blocked", "runaway", "diverged", "disagree"]


class PoolError(AggverifyError):
    """The pool itself cannot work here: no torch, wrong platform, closed, launcher gone."""


class Unusable(PoolError):
    """Ranks cannot be joined here by a backend; another one may do."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call of the handler on every rank of a world.

    ``payload``: JSON-able. ``cpu_seconds``: a rank's own CPU time before it counts as running
    away, None for the pool's default; give more to a job known to be large. ``together``: may
    share a dispatch with others like it, by the handler's ``together``; should anything at all be
    wrong with what comes back, each runs again by itself. ``fresh``: by ranks that have run no job
    before; the world is replaced if it has. ``backend``: what its ranks are joined by, None for the
    pool's. ``answer``: bytes that a rank's reply may have, None for no limit.
    """

    world: int
    payload: Mapping[str, Any]
    cpu_seconds: float | None = None
    together: bool = False
    fresh: bool = False
    backend: Backend | None = None
    answer: int | None = None


class Reply(NamedTuple):
    """What the handler returned on one rank.

    ``changes`` lists the global state it altered, ``notes`` the collectives that it issued
    (``collectives.read``), none where jobs shared a dispatch.
    """

    data: dict[str, Any]
    blob: bytes
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replies:
    """All ranks answered; ``replies[r]`` is rank r's."""

    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class ResourceOveruse:
    """Why all processes below a template were ended: there were too many, or they held too much.

    ``processes`` or ``threads``: how many there were; ``held``: mebibytes that they held, of which
    ``in_files`` were in memory files. All are 0 where they were not ended for that.
    """

    processes: int = 0
    held: int = 0
    threads: int = 0
    in_files: int = 0

    def __bool__(self) -> bool:
        return bool(self.processes or self.held or self.threads)

    @property
    def text(self) -> str:
        """The sentence for a person."""
        if self.held:
            where = f", {self.in_files} MiB of them in memfd files" if self.in_files > 1 else ""
            return f"it takes memory without end: all was ended when it held {self.held} MiB{where}"
        what = "threads" if self.threads else "processes"
        ended = f"all were ended when there were {self.threads or self.processes} of them"
        return f"it starts {what} without end: {ended}"


NO_EXCESS = ResourceOveruse()


@dataclass(frozen=True, slots=True)
class Fault:
    """A job that did not come back from every rank, or not with one result.

    ``rank``: the one at fault as far as is known, else None; ``message``: a sentence with it.
    ``size``: of the world. Per rank, where known: ``errors``, what it raised; ``stacks``, its
    threads when it was stopped; ``inside``, the collective it was in; ``traces``, the collectives
    it issued in this job; ``apart``, the one at which ranks first disagree, None for one that
    issued no more; ``output``, the tail of what it printed; ``changes``, the global state it had
    left changed. ``crash``: the interpreter's last words. ``first``: the ranks had finished no job.
    ``out_of_memory``: what the kernel reports, if it ended processes of ours for lack of memory.
    ``processes``: how many there were when all were ended for that; ``held``: the mebibytes that
    they held then, if it was for those; ``threads``: theirs, likewise. ``is_internal``: it happened
    before the code under test was called, in fresh ranks without any others, so that it is no fault
    of that code; only where nothing else can have caused it, so it is not part of what is stored.
    """

    kind: FaultKind
    rank: int | None
    message: str
    size: int = 1
    errors: Mapping[int, Raised] = field(default_factory=dict)
    stacks: Mapping[int, tuple[Stack, ...]] = field(default_factory=dict)
    inside: Mapping[int, Collective] = field(default_factory=dict)
    traces: Mapping[int, tuple[Collective, ...]] = field(default_factory=dict)
    apart: Mapping[int, Collective | None] = field(default_factory=dict)
    output: Mapping[int, str] = field(default_factory=dict)
    changes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    exit_status: int | None = None
    crash: str = ""
    first: bool = False
    out_of_memory: str = ""
    processes: int = 0
    held: int = 0
    threads: int = 0
    is_internal: bool = field(default=False, compare=False)

    @property
    def ended(self) -> str:
        """The signal that ended a rank, if another program may have sent it; "" for anything else.

        How the process that ranks are forked from ended is not known: it counts as well.
        """
        if self.kind != "died" or self.processes or self.held or self.threads:
            return ""
        if self.rank is None:
            return "an unknown signal"
        status = self.exit_status
        return signal_name(status) if status is not None and status in _FROM_OUTSIDE else ""

    @property
    def error(self) -> Raised | None:
        """What the rank at fault raised."""
        return None if self.rank is None else self.errors.get(self.rank)

    @property
    def breach(self) -> bool:
        """Whether the handler itself complains of what the code under test did."""
        return self.error is not None and bool(self.error.breach)

    @property
    def is_between_ranks(self) -> bool:
        """Whether ranks wait for each other in it, or differ in collectives or in results."""
        return self.kind in ("blocked", "diverged", "disagree")

    def to_json(self) -> dict[str, Any]:
        """Plain data, as fault.json has it; what is per rank as pairs of rank and value."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        return {
            name: codec.plain(tuple(value.items()) if isinstance(value, Mapping) else value)
            for name, value in values.items()
        }


_FROM_OUTSIDE = frozenset(
    -number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
)


@dataclass(frozen=True, slots=True)
class TemplateFailure:
    """The handler could not be constructed.

    It raised an exception, the process died or hung at import, or the import initialised CUDA.
    """

    kind: Literal["exception", "died", "blocked", "runaway", "cuda"]
    message: str
    traceback: str = ""
    output: str = ""
    exit_status: int | None = None


Outcome = Replies | Fault
