"""Where worlds of ranks come from.

That is a process on this machine (``launcher``), or one for each rank, on as many machines as one
likes (``cluster``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aggverify.world.backends import Backend
from aggverify.world.faults import ResourceOveruse, TemplateFailure
from aggverify.world.in_flight import WorldKey
from aggverify.world.link import Link
from aggverify.world.options import Options
from aggverify.world.process_inspector import ProcessInspector
from aggverify.world.replay_log import ReplayLog
from aggverify.world.sandbox import Sandbox

Ending = dict[str, Any]
"""A message of a process that ranks are forked from: see ``answers.ending``."""


class NoRoom(Exception):
    """There is no more of what ranks take; why."""


class TemplateHandle(Protocol):
    """A handler that is constructed, and what forks worlds of ranks that hold it.

    An OSError out of any method means that it is gone.
    """

    @property
    def description(self) -> dict[str, Any]:
        """What the handler described."""
        ...

    @property
    def lacks_threads(self) -> bool:
        """Whether the import has left threads that ranks forked from it do without."""
        ...

    @property
    def inspector(self) -> ProcessInspector:
        """Of the ranks."""
        ...

    def watched(self) -> Mapping[int, Callable[[], Sequence[Ending] | None]]:
        """Files, and what reading one brings: None where nothing more will come."""
        ...

    def start(self, world: int, key: WorldKey, memory: int, *, alone: bool) -> list[Link]:
        """Have the ranks of a world started; raises NoRoom. ``alone``: once no other is left."""
        ...

    def end(self, world: int) -> None:
        """Have its ranks ended."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


class Launcher(Protocol):
    """What constructs handlers."""

    @property
    def inside(self) -> Sandbox | None:
        """The sandbox that all its processes are in."""
        ...

    @property
    def most(self) -> int:
        """Ranks that a world may have."""
        ...

    @property
    def replay_log(self) -> ReplayLog | None:
        """What earlier starts of the same run have come to."""
        ...

    @property
    def carried(self) -> str:
        """What carries collectives, apart from the backend; "" for this machine's usual."""
        ...

    def open(self, request: dict[str, Any], options: Options) -> TemplateHandle | TemplateFailure:
        """Construct a handler."""
        ...

    def require(self, backend: Backend) -> int:
        """Return how many devices of its kind there are.

        Raises PoolError, with the reason, where ranks cannot be joined by this backend.
        """
        ...

    def excess(self, source: Any) -> ResourceOveruse:
        """Return what a source was ended for."""
        ...

    def kill(self, source: Any) -> None:
        """End a source and its ranks."""
        ...

    def close(self) -> None:
        """End every process."""
        ...
