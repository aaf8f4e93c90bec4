"""The driver's side of launched processes: a launcher whose worlds have a rank in each of them.

A *host* is one of the processes that torchrun or srun has started, not a machine: a world of n
ranks has one rank in each of the first n. The driver is a process next to the first host. It sends
requests to hosts, and gets their answers, through torch's store (``mail``).
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from aggverify.world import interpreter
from aggverify.world.backends import GLOO, Backend
from aggverify.world.faults import NO_EXCESS, PoolError, ResourceOveruse, TemplateFailure, Unusable
from aggverify.world.in_flight import WorldKey
from aggverify.world.launching import Ending, NoRoom
from aggverify.world.link import Link
from aggverify.world.mail import Post, ReadableQueue
from aggverify.world.options import Options
from aggverify.world.remote_ranks import RemoteInspector, RemoteLink, RemotePage
from aggverify.world.rendezvous import LOOPBACK_INTERFACE, PATIENCE, RankInfo, unreachable
from aggverify.world.replay_log import ReplayLog

_TURN = 0.1
_ENDS = 10.0
"""Seconds in which hosts report that they end."""


class Cluster:
    """All of them; a ``Launcher``. ``end`` sends them how the command has ended."""

    inside = None
    ready = True
    replay_log: ReplayLog | None = None

    def __init__(self, seat: RankInfo) -> None:
        self.seat = seat
        self._numbers, self._ids = count(1), count(1)
        self._why_not: str | None = None
        path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
        self._first = subprocess.Popen(
            interpreter.command("serving", path, os.getpid()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._hellos: list[dict[str, str]] = []
        self.sources: dict[int, RemoteTemplate] = {}
        """Templates that are open, by number."""

    @functools.cached_property
    def _post(self) -> Post:
        """Made at first use, since it imports torch: hosts, started already, do so meanwhile."""
        self.check()
        try:
            return Post(self.seat, "driver", self._deliver, self._lost)
        except RuntimeError as error:
            self.lose(self._unmet(str(error).partition("\n")[0]))
            self.check()
            raise

    def _unmet(self, why: str) -> str:
        seat = self.seat
        return (
            f"the {seat.size} processes that were launched do not find each other at "
            f"{seat.address}:{seat.port}: {why}"
        )

    @property
    def most(self) -> int:
        """Ranks that a world may have."""
        return self.seat.size

    @property
    def _machines(self) -> int:
        return len({hello["machine"] for hello in self._hellos})

    @property
    def interface(self) -> str:
        """The network interface that ranks talk over, "" for each host's own."""
        return LOOPBACK_INTERFACE if self._machines == 1 else ""

    @property
    def carried(self) -> str:
        """What carries collectives, apart from the backend."""
        size, machines = self.seat.size, self._machines
        where = "one machine" if machines == 1 else f"{machines} machines"
        return f"between {size} launched process{'es' * (size > 1)} on {where}"

    def kept(self) -> ReplayLog:
        """Return the replies that the run has kept in the store; raises PoolError."""
        return ReplayLog(self._post.store)

    def begin(self, request: dict[str, Any], options: Options) -> None:
        """Begin nothing: hosts answer what they are asked one by one."""

    def open(
        self, request: dict[str, Any], options: Options, begun: None = None
    ) -> RemoteTemplate | TemplateFailure:
        """Construct the handler in every host; return the first failure where there is any."""
        self._met(options.turn)
        number = next(self._numbers)
        given = options.limits()
        message = {
            "op": "open",
            "template": number,
            "request": request,
            "options": given,
            "backend": options.backend.name,
        }
        template = self.sources[number] = RemoteTemplate(self, number)
        each = self.ask_all(message, options.turn)
        failed = [(n, answer["failure"]) for n, answer in each.items() if "failure" in answer]
        if failed:
            self.kill(template)
            template.close()
            host, failure = failed[0]
            if len(failed) < len(each):
                failure["message"] += f" (on rank {host}, not on all {len(each)})"
            return TemplateFailure(**failure)
        found = [answer["description"] for answer in each.values()]
        for n, description in enumerate(found):
            if _imported(description) != _imported(found[0]):
                self.kill(template)
                template.close()
                raise PoolError(
                    f"rank {n} has imported something else than rank 0: is it the same file, with "
                    "the same packages, on every machine?"
                )
        template.description = found[0]
        template.lacks_threads = any(answer["lacks_threads"] for answer in each.values())
        return template

    def require(self, backend: Backend) -> int:
        """Return 0 devices: launched processes have processors only.

        Raises PoolError, with the reason, where ranks cannot be joined by this backend.
        """
        if backend != GLOO:
            raise Unusable(f"launched processes are joined by gloo only, not by {backend.name}")
        self._met(lambda: None)
        return 0

    def excess(self, template: RemoteTemplate) -> ResourceOveruse:
        """Return what a template was ended for."""
        each = self.ask_all({"op": "excess", "template": template.number})
        found = (ResourceOveruse(*answer.get("excess", ())) for answer in each.values())
        return next(filter(None, found), NO_EXCESS)

    def kill(self, template: RemoteTemplate) -> None:
        """End a template and its ranks; messages about them are dropped from now on."""
        self.sources.pop(template.number, None)
        for host in range(self.seat.size):
            self.send(host, {"op": "close", "template": template.number})

    def close(self) -> None:
        """Do nothing: hosts live as long as the command, and ``end`` ends them."""

    # -- all hosts ----------------------------------------------------------------------------

    def _met(self, turn: Callable[[], None]) -> None:
        """Wait until every host has answered once; raises PoolError."""
        if self._hellos:
            return
        hellos = self.ask_all({"op": "hello"}, turn, PATIENCE)
        self._hellos = list(hellos.values())
        if self._machines > 1 and not all(each["interface"] for each in self._hellos):
            self.lose(unreachable(self.seat))
        self.check()
        self._post.watch(f"host/{n}" for n in hellos)

    def check(self) -> None:
        """Raise PoolError after ``lose``."""
        if self._why_not is not None:
            raise PoolError(self._why_not)

    def ask_all(
        self,
        request: Mapping[str, Any],
        turn: Callable[[], None] = lambda: None,
        patience: float = math.inf,
    ) -> dict[int, dict[str, Any]]:
        """Ask every host the same, and return the answers by number of the host."""
        return self.ask(dict.fromkeys(range(self.seat.size), request), turn, patience)

    def ask(
        self,
        requests: Mapping[int, Mapping[str, Any]],
        turn: Callable[[], None] = lambda: None,
        patience: float = math.inf,
    ) -> dict[int, dict[str, Any]]:
        """Send requests by host, all at a time, and return their answers by host.

        Raises PoolError when a host is lost, has failed, or has not answered in so many seconds.
        """
        ends = time.monotonic() + patience
        waiting = {next(self._ids): n for n in requests}
        for number, n in waiting.items():
            self._send(n, {**requests[n], "id": number})
        found: dict[int, dict[str, Any]] = {}
        while waiting:
            turn()
            if time.monotonic() > ends:
                late = ", ".join(map(str, sorted(waiting.values())))
                self.lose(self._unmet(f"rank {late} has not come in {patience:g} s"))
            self.check()
            with contextlib.suppress(queue.Empty):
                number, answer = self._answers.get(timeout=_TURN)
                # The answer to a request that was interrupted is dropped.
                if (host := waiting.pop(number, None)) is not None:
                    found[host] = answer
        for n, answer in sorted(found.items()):
            if "error" in answer:
                raise PoolError(f"rank {n}: {answer['error']}")
        return dict(sorted(found.items()))

    def send(self, host: int, request: Mapping[str, Any], blob: bytes = b"") -> None:
        """Send a host what needs no answer, or nothing after ``lose``: ``ask`` raises then."""
        if not self.lost:
            self._send(host, dict(request), blob)

    def _send(self, host: int, request: dict[str, Any], blob: bytes = b"") -> None:
        self.check()
        try:
            self._post.send(f"host/{host}", request, blob)
        except PoolError as error:
            self.lose(str(error))
            raise

    def _deliver(self, letter: dict[str, Any], blob: bytes) -> None:
        """Take a letter of a host; called by the thread of the mailbox."""
        if "answer" in letter:
            self._answers.put((letter["id"], letter["answer"]))
        elif "gone" in letter:
            self._lost(f"host/{letter['from']}", letter["gone"])
        elif (template := self.sources.get(letter.get("template", 0))) is not None:
            template.deliver(letter, blob)

    def _lost(self, name: str, why: str) -> None:
        """Note that a host is lost, or the store (no name); called by a thread of the mailbox."""
        rank = name.rpartition("/")[2]
        gone = f"the process of rank {rank}, of {self.seat.size} launched, is gone: {why}"
        self.lose(gone if rank else why)
        for template in list(self.sources.values()):
            template.endings.put({})  # wakes the loop that waits for it

    def lose(self, why: str) -> None:
        """Ask nothing more from now on, for this reason; the first one counts."""
        self._why_not = self._why_not or why

    @property
    def lost(self) -> bool:
        """Whether nothing more can be asked."""
        return self._why_not is not None

    def end(self, code: int) -> None:
        """Send every host its exit code, and wait for those that can end."""
        request, sent = {"op": "end", "code": code}, False
        with contextlib.suppress(PoolError, KeyboardInterrupt):
            if not self.lost:
                self._met(lambda: None)
                self.ask_all(request, patience=_ENDS)
                sent = True
        self.lose("the command has ended")
        if (post := vars(self).get("_post")) is not None:
            if not sent:  # a host is lost, or does not answer: the others are to end all the same
                with contextlib.suppress(PoolError):
                    for host in range(self.seat.size):
                        post.send(f"host/{host}", request)
                time.sleep(_TURN)
            post.close()
        try:
            self._first.wait(_ENDS)
        except subprocess.TimeoutExpired:
            self._first.send_signal(signal.SIGKILL)
            self._first.wait()


@dataclass(slots=True)
class RemoteTemplate:
    """A handler constructed in every host; a ``TemplateHandle``."""

    cluster: Cluster
    number: int
    description: dict[str, Any] = field(default_factory=dict)
    lacks_threads: bool = False
    endings: ReadableQueue = field(default_factory=ReadableQueue)
    """What hosts report of their template processes; an empty message wakes a waiting reader."""
    links: dict[tuple[int, int], RemoteLink] = field(default_factory=dict)
    """By world and host."""

    def deliver(self, letter: dict[str, Any], blob: bytes) -> None:
        """Take a letter of a host; called by the thread of the mailbox."""
        if "world" not in letter:
            self.endings.put(letter)
        elif (link := self.links.get((letter["world"], letter["from"]))) is not None:
            link.put(letter, blob)

    @property
    def inspector(self) -> RemoteInspector:
        """Of the ranks."""
        return RemoteInspector(self.cluster, self.number, range(self.cluster.most))

    def watched(self) -> Mapping[int, Callable[[], Sequence[Ending] | None]]:
        """Messages of each host's template process."""
        return {self.endings.fileno(): self._endings}

    def _endings(self) -> list[Ending]:
        self.cluster.check()
        letters = [letter for (letter,) in self.endings.take_all()]
        if any("over" in letter for letter in letters):
            raise ConnectionResetError("the template process ended")
        # A host has one rank in each world, of its own number: what code under test in its
        # template process may have written as ``rank`` does not count.
        return [{**letter["ending"], "rank": letter["from"]} for letter in letters]

    def start(self, world: int, key: WorldKey, memory: int, *, alone: bool) -> list[Link]:
        """Have each of the first hosts fork its rank; raises NoRoom."""
        if key.size > self.cluster.most:
            raise NoRoom(f"{self.cluster.most} processes were launched")
        pages = [RemotePage(self.cluster, self.number, world, n) for n in range(key.size)]
        links: list[Link] = []
        for page in pages:
            link = self.links[world, page.host] = RemoteLink(page)
            links.append(link)
        request = {
            "op": "world",
            "template": self.number,
            "world": world,
            "size": key.size,
            "backend": key.backend.name,
            "memory": memory,
            "alone": alone,
            "interface": self.cluster.interface,
        }
        each = self.cluster.ask(dict.fromkeys(range(key.size), request))
        for n, answer in each.items():
            if "refused" in answer:
                self.end(world)
                for made in links:
                    made.close()
                raise NoRoom(f"rank {n}: {answer['refused']}")
        return links

    def end(self, world: int) -> None:
        """Have its ranks ended."""
        for each, host in [key for key in self.links if key[0] == world]:
            del self.links[each, host]
            self.cluster.send(host, {"op": "kill", "template": self.number, "world": world})

    def close(self) -> None:
        """Let go of its file."""
        self.endings.close()


def _imported(description: dict[str, Any]) -> dict[str, Any]:
    """Return what must be the same everywhere: torch, but not the processors that it finds."""
    environment = description.get("environment") or {}
    return {**description, "environment": environment.get("torch")}
