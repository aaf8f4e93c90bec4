"""What the driver sees of processes on other hosts: it asks, and they look.

A process is known here by one number, of its host and of its own there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aggverify.world import linux
from aggverify.world.processes import Look, Slept, Thread

_SHIFT = 23
"""Processes of host h go by their number there with h above these bits, which no number reaches."""


class Asked(Protocol):
    """Hosts that answer requests; raises PoolError where one is lost."""

    def ask(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Each its own request."""

    def ask_all(self, request: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """The same of all."""


@dataclass(frozen=True, slots=True)
class Page:
    """A rank's slate."""

    hosts: Asked
    template: int
    world: int
    host: int

    def pread(self, size: int, at: int) -> bytes:
        """So many of its bytes from there; zeros at the end are left out."""
        data: str = self._read(size, at)["data"]
        return data.encode("latin-1")

    def size(self) -> int:
        """Of its file."""
        size: int = self._read(0, 0)["size"]
        return size

    def _read(self, size: int, at: int) -> dict[str, Any]:
        request = {"op": "page", "template": self.template, "world": self.world}
        return self.hosts.ask({self.host: {**request, "size": size, "at": at}})[self.host]


def sent(seen: Look) -> dict[str, Any]:
    """What a host answers of what it has seen."""
    return {
        "threads": [
            (t.number, t.state.decode(), t.switched, t.used, t.runnable, t.ticks)
            for t in seen.threads
        ],
        "cpu": list(seen.cpu.items()),
        "roots": list(seen.roots.items()),
        "load": seen.load,
    }


@dataclass(frozen=True, slots=True)
class Far:
    """Sees the ranks of several hosts; ``Sight``."""

    hosts: Asked
    template: int

    def look(self, pids: Iterable[int], ticking: Iterable[bytes]) -> Look:
        return self._seen(pids, {"ticking": [name.decode() for name in ticking]}, glance=False)

    def glance(self, pids: Iterable[int]) -> Look:
        return self._seen(pids, {}, glance=True)

    def _seen(self, pids: Iterable[int], more: Mapping[str, Any], *, glance: bool) -> Look:
        there: dict[int, list[int]] = {}
        for pid in pids:
            there.setdefault(pid >> _SHIFT, []).append(pid & ((1 << _SHIFT) - 1))
        each = self._ask("look", {n: {"pids": found, **more} for n, found in there.items()})
        threads: list[Thread] = []
        cpu: dict[int, float] = {}
        roots: dict[int, int] = {}
        for n, seen in each.items():
            threads += [Thread(_far(n, t), s.encode(), *rest) for t, s, *rest in seen["threads"]]
            cpu |= {_far(n, pid): seconds for pid, seconds in seen["cpu"]}
            roots |= {_far(n, pid): _far(n, root) for pid, root in seen["roots"]}
        load = max((seen["load"] for seen in each.values()), default=0.0)
        return Look(tuple(threads), cpu, roots, glance, load)

    def slept(self, pid: int) -> Slept | None:
        found = self._of(pid, "slept")["slept"]
        return None if found is None else Slept(*found)

    def child(self, rank: int, number: int) -> int:
        found = self._ask("child", {rank: {"number": number}})[rank]["child"]
        return linux.NOBODY if found == linux.NOBODY else _far(rank, found)

    def wake(self) -> None:
        self.hosts.ask_all({"op": "wake", "template": self.template})

    def ask(self, pid: int, *, wake: bool) -> None:
        self._of(pid, "ask", wake=wake)

    def _of(self, pid: int, what: str, **more: Any) -> dict[str, Any]:
        n = pid >> _SHIFT
        return self._ask(what, {n: {"pid": pid & ((1 << _SHIFT) - 1), **more}})[n]

    def _ask(self, what: str, each: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        request = {"op": what, "template": self.template}
        return self.hosts.ask({n: {**request, **more} for n, more in each.items()})


def _far(host: int, pid: int) -> int:
    return host << _SHIFT | pid
