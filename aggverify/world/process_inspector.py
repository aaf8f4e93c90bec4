"""Where the processes of ranks are seen and signalled.

That is on this machine, or on several (``cluster``).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Protocol

from aggverify.world import linux, processes, stacks
from aggverify.world.processes import Look, Slept


class ProcessInspector(Protocol):
    """Processes go by numbers that only have to be different for each of them."""

    def look(self, pids: Iterable[int], ticking: Set[bytes]) -> Look:
        """See :func:`processes.look`."""
        ...

    def glance(self, pids: Iterable[int]) -> Look:
        """See :func:`processes.glance`."""
        ...

    def contention(self, pids: Iterable[int]) -> float:
        """See :func:`processes.contention`."""
        ...

    def slept(self, pid: int) -> Slept | None:
        """See :func:`processes.slept`."""
        ...

    def child(self, rank: int, number: int) -> int:
        """Return the rank that calls itself by this number, or ``linux.NO_PROCESS``."""
        ...

    def wake(self) -> None:
        """Let what ranks are forked from go on, should it have been stopped."""
        ...

    def ask(self, pid: int, *, wake: bool) -> None:
        """Have a process write its stacks; ``wake``: see :func:`stacks.ask`."""
        ...


@dataclass(frozen=True, slots=True)
class LocalInspector:
    """Inspects this machine, and the process that ranks are forked from."""

    template: int = linux.NO_PROCESS

    def look(self, pids: Iterable[int], ticking: Set[bytes]) -> Look:
        return processes.look(pids, ticking)

    def glance(self, pids: Iterable[int]) -> Look:
        return processes.glance(pids)

    def contention(self, pids: Iterable[int]) -> float:
        return processes.contention(pids)

    def slept(self, pid: int) -> Slept | None:
        return processes.slept(pid)

    def child(self, rank: int, number: int) -> int:
        return linux.child(self.template, number)

    def wake(self) -> None:
        linux.wake(self.template)

    def ask(self, pid: int, *, wake: bool) -> None:
        stacks.ask(pid, wake=wake)


HERE = LocalInspector()
