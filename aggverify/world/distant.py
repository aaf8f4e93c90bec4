"""A rank of another launched process as the driver sees it: its link, and its process.

The process that has the rank reads, checks and looks; here is what it has written of that. A
process is known by one number, of its host and of its own there.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from aggverify.world import linux
from aggverify.world.link import Arrived, Link, Output
from aggverify.world.processes import Look, Slept, Thread

_SHIFT = 23
"""Processes of host h go by their number there with h above these bits, which no number reaches."""
_MUCH = 1 << 15
"""Of what a rank prints, at a time: as ``Output.much``."""


class Asked(Protocol):
    """Hosts that are written to; raises PoolError where one is lost."""

    def ask(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Each its own request; their answers."""

    def tell(self, host: int, request: Mapping[str, Any], blob: bytes = b"") -> None:
        """What needs no answer."""


class Ear:
    """What a thread has put there; ``fd`` can be read when there is something."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque()

    def fileno(self) -> int:
        """Its number; another one after it is closed."""
        return self._fd

    def put(self, what: Any) -> None:
        """By the thread."""
        with self._lock:
            self._waiting.append(what)
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def taken(self) -> list[Any]:
        """All that is there."""
        with self._lock:
            if self._waiting:
                os.eventfd_read(self._fd)
            return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def close(self) -> None:
        """Take nothing more."""
        with self._lock:
            os.close(self._fd)
            self._fd = -1


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


class FarOutput(Output):
    """What it prints, as far as its host has written that."""

    __slots__ = ("_ear", "_page")

    def __init__(self, ear: Ear, page: Page) -> None:
        super().__init__(ear.fileno(), _MUCH)
        self._ear, self._page = ear, page

    def put(self, size: int, shown: bytes) -> None:
        """By the thread that reads letters."""
        self._ear.put((size, shown))

    def read(self) -> int:
        """Take what is there; how many bytes were printed."""
        taken = self._ear.taken()
        if not taken:
            raise BlockingIOError
        for size, shown in taken:
            self._keep(shown, size)
        return sum(size for size, _ in taken)

    def drain(self) -> str:
        """Have its host read everything that can be; the tail as text."""
        page = self._page
        request = {"op": "drain", "template": page.template, "world": page.world}
        page.hosts.ask({page.host: request})
        return Output.drain(self)

    def close(self) -> None:
        self._ear.close()


class FarLink(Link):
    """A rank's link: what its host has read of it arrives here, and what is written goes there."""

    __slots__ = ("_ear", "_page", "_printed")

    def __init__(self, page: Page) -> None:
        ear, printed = Ear(), FarOutput(Ear(), page)
        super().__init__(page.host, cast("socket.socket", ear), printed, page)
        self._ear, self._printed, self._page = ear, printed, page

    def put(self, letter: Mapping[str, Any], blob: bytes) -> None:
        """By the thread that reads letters."""
        if "printed" in letter:
            self._printed.put(letter["printed"], blob)
        else:
            self._ear.put((letter, blob))

    def read(self) -> Arrived:
        """Take what has arrived."""
        size, complete = 0, False
        for letter, blob in self._ear.taken():
            if "ended" in letter:
                self._end()
                self.garbage = letter["ended"]
            elif not self.ended:
                arrived = self.hear(blob)
                size, complete = size + arrived.size, complete or arrived.complete
        return Arrived(size, complete)

    def write(self) -> None:
        """Send what there is to send."""
        if self.out:
            page = self._page
            request = {"op": "write", "template": page.template, "world": page.world}
            more = {"asked": self.asked, "most": self.decoder.most}
            page.hosts.tell(page.host, request | more, bytes(self.out))
            self.out.clear()

    def close(self) -> None:
        """Let go of everything."""
        self.sock.close()
        self.output.close()


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
    ranks: range

    def look(self, pids: Iterable[int], ticking: Iterable[bytes]) -> Look:
        names = [name.decode() for name in ticking]
        return self._seen(pids, {"op": "look", "ticking": names}, glance=False)

    def glance(self, pids: Iterable[int]) -> Look:
        return self._seen(pids, {"op": "glance"}, glance=True)

    def _seen(self, pids: Iterable[int], request: Mapping[str, Any], *, glance: bool) -> Look:
        there: dict[int, list[int]] = {}
        for pid in pids:
            there.setdefault(pid >> _SHIFT, []).append(pid & ((1 << _SHIFT) - 1))
        each = self._ask({n: {**request, "pids": found} for n, found in there.items()})
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
        found = self._of(pid, {"op": "slept"})
        return None if found is None else Slept(*found)

    def child(self, rank: int, number: int) -> int:
        found = self._ask({rank: {"op": "child", "number": number}})[rank]["seen"]
        return linux.NOBODY if found == linux.NOBODY else _far(rank, found)

    def wake(self) -> None:
        self._ask({n: {"op": "wake"} for n in self.ranks})

    def ask(self, pid: int, *, wake: bool) -> None:
        self._of(pid, {"op": "ask", "awake": wake})

    def _of(self, pid: int, request: dict[str, Any]) -> Any:
        n, number = pid >> _SHIFT, pid & ((1 << _SHIFT) - 1)
        return self._ask({n: {**request, "pid": number}})[n]["seen"]

    def _ask(self, each: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        return self.hosts.ask({n: {**r, "template": self.template} for n, r in each.items()})


def _far(host: int, pid: int) -> int:
    return host << _SHIFT | pid
