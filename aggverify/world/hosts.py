"""The driver's side of several hosts: a launcher whose worlds have a rank on each of them.

A world of n ranks lives on the first n hosts, as many as torchrun or srun has started. The driver
is a process beside the first one, and talks to each over one connection, request by request; to
every rank over two of its own, made as its world is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from aggverify.world import answers, wire
from aggverify.world.backends import GLOO, Backend
from aggverify.world.door import Door
from aggverify.world.far import Far, Page
from aggverify.world.faults import NO_EXCESS, Excess, PoolError, TemplateFailure, Unusable
from aggverify.world.flight import Key
from aggverify.world.journal import Journal
from aggverify.world.link import Link, Output
from aggverify.world.meeting import PATIENCE, Seat
from aggverify.world.opened import endings
from aggverify.world.options import Options
from aggverify.world.source import Ending, NoRoom

_ROOT = str(Path(__file__).resolve().parent.parent.parent)
_CODE = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from aggverify.world.host import main; main({fd}, {parent})"
)
_TURN = 0.1
_MUCH = 1 << 15
"""Of what a rank prints, at a time: as ``Output.much``."""


class Hosts:
    """All of them; ``Launches``. ``end`` says to them how the command has ended."""

    inside = None
    journal: Journal | None = None

    def __init__(self, seat: Seat) -> None:
        self.seat = self._seat = seat
        self._machines = 0
        self._numbers = count(1)
        self._why_not: str | None = None
        self._connections: list[socket.socket] = []
        self._own, theirs = socket.socketpair()
        code = _CODE.format(root=_ROOT, fd=theirs.fileno(), parent=os.getpid())
        with theirs:
            # -P: a torch.py in the working directory must not be taken for torch.
            self._first = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._door: Door | None = None
        path = [entry or str(Path.cwd()) for entry in sys.path]
        wire.send(self._own, {"sys_path": path, "seat": asdict(seat)})

    @property
    def most(self) -> int:
        """Ranks that a world may have."""
        return self._seat.size

    @property
    def carried(self) -> str:
        """What carries collectives, beside the backend."""
        size, machines = self._seat.size, self._machines
        where = "one machine" if machines == 1 else f"{machines} machines"
        return f"between {size} launched process{'es' * (size > 1)} on {where}"

    def open(self, request: dict[str, Any], options: Options) -> Joined | TemplateFailure:
        """The handler constructed on every host; the first failure where it is on any."""
        door = self._met(options.turn)
        number = next(self._numbers)
        tickets = [door.ticket() for _ in self._connections]
        said = {f.name: getattr(options, f.name) for f in fields(Options)[:-3]}
        message = {
            "op": "open",
            "template": number,
            "request": request,
            "options": said,
            "backend": options.backend.name,
        }
        each = self.ask({n: {**message, "ticket": t} for n, t in enumerate(tickets)}, options.turn)
        failed = [(n, answer["failure"]) for n, answer in each.items() if "failure" in answer]
        if failed:
            self._close(number)
            host, failure = failed[0]
            if len(failed) < len(each):
                failure["message"] += f" (on rank {host}, not on all {len(each)})"
            return TemplateFailure(**failure)
        found = [answer["description"] for answer in each.values()]
        for n, description in enumerate(found):
            if _imported(description) != _imported(found[0]):
                self._close(number)
                raise PoolError(
                    f"rank {n} has imported something else than rank 0: is it the same file, with "
                    "the same packages, on every machine?"
                )
        connections = self.take(door, tickets)
        lacks = any(answer["lacks_threads"] for answer in each.values())
        return Joined(self, number, door, connections, found[0], lacks)

    def require(self, backend: Backend) -> int:
        """0, as there are processors only; raises PoolError, with the reason, where ranks cannot be
        joined by this backend."""
        if backend != GLOO:
            raise Unusable(f"launched processes are joined by gloo only, not by {backend.name}")
        self._met(lambda: None)
        self.ask_all({"op": "require", "backend": backend.name})
        return 0

    def excess(self, source: Joined) -> Excess:
        """What a source was ended for."""
        each = self.ask_all({"op": "excess", "template": source.number})
        found = (Excess(*answer.get("excess", ())) for answer in each.values())
        return next(filter(None, found), NO_EXCESS)

    def kill(self, source: Joined) -> None:
        """End a source and its ranks."""
        self._close(source.number)

    def close(self) -> None:
        """Nothing: hosts are the command's, and end with it."""

    def _close(self, template: int) -> None:
        with contextlib.suppress(PoolError):  # a host is gone, and with it its ranks
            self.ask_all({"op": "close", "template": template})

    # -- all hosts ----------------------------------------------------------------------------

    def _met(self, turn: Callable[[], None]) -> Door:
        """Once all have come."""
        if self._why_not is not None:
            raise PoolError(self._why_not)
        if self._door is not None:
            return self._door
        try:
            while not select.select([self._own], [], [], _TURN)[0]:
                turn()
            try:
                message = wire.receive(self._own)
            except (OSError, wire.WireError):
                message = None
            if message is None:
                raise PoolError("the first host has ended before it has met the others")
            said, files = message
            if "error" in said:
                raise PoolError(said["error"])
            self._machines = said["machines"]
            self._door = Door(socket.socket(fileno=files[0]))
            self._connections = self._door.take(said["tickets"], turn)
        except BaseException as error:
            self.lose(str(error) or "interrupted")
            raise
        return self._door

    def ask_all(self, request: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """The answers of all hosts, by number."""
        return self.ask(dict.fromkeys(range(self._seat.size), request))

    def ask(
        self,
        requests: Mapping[int, Mapping[str, Any]],
        turn: Callable[[], None] = lambda: None,
    ) -> dict[int, dict[str, Any]]:
        """Requests by host, all at a time, and their answers; raises PoolError."""
        if self._why_not is not None:
            raise PoolError(self._why_not)
        try:
            for n, request in requests.items():
                with self._blamed(n):
                    wire.send(self._connections[n], dict(request))
            found = {n: self._answer(n, turn) for n in requests}
        except BaseException as error:  # what has not been read is an answer to nothing else
            self.lose(str(error) or "interrupted")
            raise
        for n, answer in found.items():
            if "error" in answer:
                raise PoolError(f"rank {n}: {answer['error']}")
        return found

    def _answer(self, n: int, turn: Callable[[], None]) -> dict[str, Any]:
        connection, ends = self._connections[n], time.monotonic() + PATIENCE
        while True:
            turn()
            if time.monotonic() > ends:
                raise PoolError(
                    f"host {n} of {self._seat.size} has sent nothing for {PATIENCE:g} s"
                )
            if not select.select([connection], [], [], _TURN)[0]:
                continue
            with self._blamed(n):
                message = wire.receive(connection)
                if message is None:
                    raise ConnectionResetError("it has ended")
            if "busy" not in message[0]:
                return message[0]
            ends = time.monotonic() + PATIENCE

    @contextlib.contextmanager
    def _blamed(self, n: int) -> Any:
        try:
            yield
        except (OSError, wire.WireError) as error:
            why = getattr(error, "strerror", None) or str(error)
            gone = f"the process of rank {n}, of {self._seat.size} launched, is gone: {why}"
            raise PoolError(gone) from None

    def take(self, door: Door, tickets: Sequence[str]) -> list[socket.socket]:
        """The connections that hosts have made."""
        try:
            return door.take(tickets, lambda: None)
        except BaseException as error:
            self.lose(str(error) or "interrupted")
            raise

    def lose(self, why: str) -> None:
        """Nothing more is asked, for this reason."""
        self._why_not = why

    @property
    def lost(self) -> bool:
        """Whether nothing more can be asked."""
        return self._why_not is not None

    def end(self, code: int) -> None:
        """Tell all with which code to end; the first one has, when this returns."""
        with contextlib.suppress(PoolError, KeyboardInterrupt):
            if not self.lost:
                self._met(lambda: None)
        for connection in self._connections:
            with contextlib.suppress(OSError):
                wire.send(connection, {"op": "end", "code": code})
        self.lose("the command has ended")
        for connection in self._connections:
            connection.close()
        if self._door is not None:
            self._door.close()
        self._own.close()
        try:
            self._first.wait(10)
        except subprocess.TimeoutExpired:
            self._first.send_signal(signal.SIGKILL)
            self._first.wait()


@dataclass(slots=True)
class Joined:
    """A handler constructed on every host; a ``Source``."""

    hosts: Hosts
    number: int
    door: Door
    connections: Sequence[socket.socket]
    description: dict[str, Any]
    lacks_threads: bool

    @property
    def sight(self) -> Far:
        """Of the ranks."""
        return Far(self.hosts, self.number)

    def watched(self) -> Mapping[int, Callable[[], Sequence[Ending] | None]]:
        """What each host's process says that its rank is forked from."""
        return {
            connection.fileno(): partial(_endings, connection, wire.Decoder(answers.SMALL), n)
            for n, connection in enumerate(self.connections)
        }

    def start(self, world: int, key: Key, memory: int, *, alone: bool) -> list[Link]:
        """Have each of the first hosts fork its rank; raises NoRoom."""
        if key.size > self.hosts.most:
            raise NoRoom(f"{self.hosts.most} processes were launched")
        tickets = [(self.door.ticket(), self.door.ticket()) for _ in range(key.size)]
        message = {
            "op": "world",
            "template": self.number,
            "world": world,
            "size": key.size,
            "backend": key.backend.name,
            "memory": memory,
            "alone": alone,
        }
        each = self.hosts.ask({n: {**message, "tickets": t} for n, t in enumerate(tickets)})
        for n, answer in each.items():
            if "refused" in answer:
                self.end(world)
                raise NoRoom(f"rank {n}: {answer['refused']}")
        flat = self.hosts.take(self.door, [ticket for pair in tickets for ticket in pair])
        for connection in flat:
            connection.setblocking(False)
        return [
            Link(
                rank,
                flat[2 * rank],
                Output(flat[2 * rank + 1].detach(), _MUCH),
                Page(self.hosts, self.number, world, rank),
            )
            for rank in range(key.size)
        ]

    def end(self, world: int) -> None:
        """Have its ranks ended."""
        self.hosts.ask_all({"op": "kill", "template": self.number, "world": world})

    def close(self) -> None:
        """Let go of connections."""
        for connection in self.connections:
            connection.close()


def _endings(connection: socket.socket, decoder: wire.Decoder, rank: int) -> list[Ending]:
    """A host has one rank in each world, whatever is said there."""
    return [{**said, "rank": rank} for said in endings(connection, decoder)]


def _imported(description: dict[str, Any]) -> dict[str, Any]:
    """What must be the same everywhere: torch, but not the processors that it finds."""
    environment = description.get("environment") or {}
    return {**description, "environment": environment.get("torch")}
