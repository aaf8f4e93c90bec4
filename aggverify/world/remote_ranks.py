"""A rank of another launched process as the driver sees it: its link, and its process.

The host of the rank (``serving``) reads its connection and looks at its process; what arrives here
is what that host reports. A process is known by one number, made of its host's and its pid there.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Protocol, cast

from aggverify.world import linux
from aggverify.world.link import CapturedOutput, Link, Received
from aggverify.world.mail import ReadableQueue
from aggverify.world.processes import Look, Slept, Thread

_SHIFT = 23
"""The host's number is shifted by so many bits, above any pid (``linux.NO_PROCESS`` included)."""
_OWN = (1 << _SHIFT) - 1
_MUCH = 1 << 15
"""As ``CapturedOutput.much``: bytes printed at a time that may have filled the rank's pipe."""


class NodeAgents(Protocol):
    """Hosts that requests are sent to (``Cluster``); raises PoolError where one is lost."""

    def ask(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Send each host its request, and return their answers by host."""

    def send(self, host: int, request: Mapping[str, Any], blob: bytes = b"") -> None:
        """Send what needs no answer."""


@dataclass(frozen=True, slots=True)
class RemotePage:
    """A rank's flight recorder (``RemoteRecord``), read through its host."""

    agents: NodeAgents
    template: int
    world: int
    host: int

    def pread(self, size: int, at: int) -> bytes:
        """Read ``size`` bytes from offset ``at``; zeros at the end are left out."""
        data: str = self.ask("page", size=size, at=at)["data"]
        return data.encode("latin-1")

    def size(self) -> int:
        """Return the size of its file."""
        size: int = self.ask("page", size=0, at=0)["size"]
        return size

    def ask(self, what: str, **more: int) -> dict[str, Any]:
        """Have the host do ``what`` with this rank; its answer."""
        return self.agents.ask({self.host: self.request(what, **more)})[self.host]

    def request(self, what: str, **more: int) -> dict[str, Any]:
        """Return a request about this rank."""
        return {"op": what, "template": self.template, "world": self.world, **more}


class RemoteOutput(CapturedOutput):
    """What a rank prints, as far as its host has reported that."""

    __slots__ = ("_page", "queue")

    def __init__(self, queue: ReadableQueue, page: RemotePage) -> None:
        super().__init__(queue.fileno(), _MUCH)
        self.queue, self._page = queue, page

    def read(self) -> int:
        """Take what is there; how many bytes were printed."""
        taken = self.queue.take_all()
        if not taken:
            raise BlockingIOError
        for size, shown in taken:
            self._keep(shown, size)
        return sum(size for size, _ in taken)

    def drain(self) -> str:
        """Have its host read everything that can be; the tail as text."""
        self._page.ask("drain")
        return CapturedOutput.drain(self)

    def close(self) -> None:
        self.queue.close()


class RemoteLink(Link):
    """A rank's link: what its host has read of it arrives here, and what is written goes there."""

    __slots__ = ("_arrived", "_page", "_printed")

    def __init__(self, page: RemotePage) -> None:
        arrived, printed = ReadableQueue(), RemoteOutput(ReadableQueue(), page)
        super().__init__(page.host, cast("socket.socket", arrived), printed, page)
        self._arrived, self._printed, self._page = arrived, printed, page

    def put(self, letter: Mapping[str, Any], blob: bytes) -> None:
        """Take a letter about this rank; called by the thread of the mailbox."""
        if "printed" in letter:
            self._printed.queue.put(letter["printed"], blob)
        else:
            self._arrived.put(letter, blob)

    def read(self) -> Received:
        """Take what has arrived."""
        size, complete = 0, False
        for letter, blob in self._arrived.take_all():
            if "ended" in letter:
                self._end()
                self.garbage = letter["ended"]
            elif not self.ended:
                arrived = self.hear(blob)
                size, complete = size + arrived.size, complete or arrived.complete
        return Received(size, complete)

    def write(self) -> None:
        """Send what there is to send."""
        if self.out:
            page = self._page
            request = page.request("write", asked=self.asked, most=self.decoder.most)
            page.agents.send(page.host, request, bytes(self.out))
            self.out.clear()


def sent(seen: Any) -> Any:
    """Return what a host has seen as JSON-able data, which ``RemoteInspector`` reads."""
    if not isinstance(seen, Look):
        return seen
    threads = [(t.number, t.state.decode(), *astuple(t)[2:]) for t in seen.threads]
    return threads, list(seen.cpu.items()), list(seen.roots.items()), seen.load


@dataclass(frozen=True, slots=True)
class RemoteInspector:
    """Sees the ranks of several hosts, each by its own ``LocalInspector``; ``ProcessInspector``."""

    agents: NodeAgents
    template: int
    ranks: range

    def contention(self, pids: Iterable[int]) -> float:
        return 1.0  # who launches ranks gives each machine to one job

    def look(self, pids: Iterable[int], ticking: Iterable[bytes]) -> Look:
        return self._seen(pids, "look", {"ticking": [name.decode() for name in ticking]})

    def glance(self, pids: Iterable[int]) -> Look:
        return self._seen(pids, "glance", {})

    def _seen(self, pids: Iterable[int], what: str, more: dict[str, Any]) -> Look:
        there: dict[int, dict[str, Any]] = {}
        for pid in pids:
            there.setdefault(pid >> _SHIFT, {"pids": [], **more})["pids"].append(pid & _OWN)
        found: tuple[list[Thread], dict[int, float], dict[int, int]] = [], {}, {}
        most = 0.0
        for n, (threads, cpu, roots, load) in self._asked(what, there).items():
            found[0].extend(Thread(_global_pid(n, t), s.encode(), *rest) for t, s, *rest in threads)
            found[1].update((_global_pid(n, pid), seconds) for pid, seconds in cpu)
            found[2].update((_global_pid(n, pid), _global_pid(n, root)) for pid, root in roots)
            most = max(most, load)
        return Look(tuple(found[0]), found[1], found[2], what == "glance", most)

    def slept(self, pid: int) -> Slept | None:
        found = self._of(pid, "slept")
        return None if found is None else Slept(*found)

    def child(self, rank: int, number: int) -> int:
        found = self._asked("child", {rank: {"rank": rank, "number": number}})[rank]
        return linux.NO_PROCESS if found == linux.NO_PROCESS else _global_pid(rank, found)

    def wake(self) -> None:
        self._asked("wake", {n: {} for n in self.ranks})

    def ask(self, pid: int, *, wake: bool) -> None:
        self._of(pid, "ask", wake=wake)

    def _of(self, pid: int, what: str, **more: Any) -> Any:
        return self._asked(what, {pid >> _SHIFT: {"pid": pid & _OWN, **more}})[pid >> _SHIFT]

    def _asked(self, what: str, each: Mapping[int, dict[str, Any]]) -> dict[int, Any]:
        request = {"op": "see", "what": what, "template": self.template}
        answers = self.agents.ask({n: {**request, "with": more} for n, more in each.items()})
        return {n: answer["seen"] for n, answer in answers.items()}


def _global_pid(host: int, pid: int) -> int:
    return host << _SHIFT | pid
