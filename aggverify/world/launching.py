"""Where worlds of ranks come from.

That is one fork server on this machine (``launcher``), or one for each rank, on any number of
machines (``cluster``).
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
    """Ranks cannot be started, as there is no more of what they take; the text names it."""


class TemplateHandle(Protocol):
    """A template process, or one on each host: has constructed its handler, and forks ranks.

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
        """Shows the processes of its ranks."""
        ...

    def watched(self) -> Mapping[int, Callable[[], Sequence[Ending] | None]]:
        """Files to poll, with what reads each: its messages, None where nothing more will come."""
        ...

    def start(self, world: int, key: WorldKey, memory: int, *, alone: bool) -> list[Link]:
        """Have the ranks of a world started; raises NoRoom. ``alone``: after all others ended."""
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

    @property
    def ready(self) -> bool:
        """Whether it answers at once; False while it imports torch."""
        ...

    def begin(self, request: dict[str, Any], options: Options) -> TemplateHandle | None:
        """Have a handler constructed while the caller goes on; None where that cannot be."""
        ...

    def open(
        self, request: dict[str, Any], options: Options, begun: Any = None
    ) -> TemplateHandle | TemplateFailure:
        """Construct a handler, or wait for the one that ``begin`` gave for the same request."""
        ...

    def require(self, backend: Backend) -> int:
        """Return how many devices of its kind there are.

        Raises PoolError, with the reason, where ranks cannot be joined by this backend.
        """
        ...

    def excess(self, template: Any) -> ResourceOveruse:
        """Return what a template was ended for."""
        ...

    def kill(self, template: Any) -> None:
        """End a template and its ranks."""
        ...

    def close(self) -> None:
        """End every process."""
        ...
