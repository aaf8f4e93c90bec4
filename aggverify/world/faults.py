"""What a job can come to: replies of every rank, or a fault as data."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from aggverify.errors import AggverifyError, InputError
from aggverify.world.backends import Backend
from aggverify.world.candidate_errors import Raised
from aggverify.world.collectives import Collective
from aggverify.world.exits import signal_name
from aggverify.world.frames import Stack

T = TypeVar("T")
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

    def to_json(self) -> dict[str, Any]:
        """Plain data for :meth:`from_json`; what is per rank as pairs of rank and value."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {
            "errors": [[rank, error.to_json()] for rank, error in self.errors.items()],
            "stacks": [[r, [s.to_json() for s in threads]] for r, threads in self.stacks.items()],
            "inside": [[rank, call.to_json()] for rank, call in self.inside.items()],
            "traces": [[r, [c.to_json() for c in calls]] for r, calls in self.traces.items()],
            "apart": [[rank, c and c.to_json()] for rank, c in self.apart.items()],
            "output": [[rank, text] for rank, text in self.output.items()],
            "changes": [[rank, list(names)] for rank, names in self.changes.items()],
        }

    @staticmethod
    def from_json(data: Any) -> Fault:
        """Read a fault; raises InputError on anything else."""
        try:
            return _fault(data)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"not a fault: {data!r:.200} ({error!r:.200})") from error


_PLAIN = (
    "kind",
    "rank",
    "message",
    "size",
    "exit_status",
    "crash",
    "first",
    "out_of_memory",
    "processes",
    "held",
    "threads",
)
_FROM_OUTSIDE = frozenset(
    -number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
)


def _fault(data: Mapping[str, Any]) -> Fault:
    if data["kind"] not in get_args(FaultKind):
        raise ValueError(f"a fault is one of {', '.join(get_args(FaultKind))}")
    return Fault(
        data["kind"],
        _whole(data["rank"]),
        str(data["message"]),
        int(data["size"]),
        _per_rank(data["errors"], Raised.from_json),
        _per_rank(data["stacks"], lambda threads: tuple(map(Stack.from_json, threads))),
        _per_rank(data["inside"], Collective.from_json),
        _per_rank(data["traces"], lambda calls: tuple(map(Collective.from_json, calls))),
        _per_rank(data["apart"], lambda c: None if c is None else Collective.from_json(c)),
        _per_rank(data["output"], str),
        _per_rank(data["changes"], lambda names: tuple(map(str, names))),
        _whole(data["exit_status"]),
        str(data["crash"]),
        bool(data["first"]),
        str(data["out_of_memory"]),
        int(data["processes"]),
        int(data["held"]),
        int(data["threads"]),
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _per_rank(pairs: Any, value: Callable[[Any], T]) -> dict[int, T]:
    return {int(rank): value(found) for rank, found in pairs}


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
