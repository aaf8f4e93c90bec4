"""One of the processes that torchrun or srun has started: hosts a rank of every world.

It has a launcher of its own, as a pool has, and does with it what the driver says: constructs
handlers, has its rank of a world forked, looks at that one's process. What a rank says goes from
there to the driver, over connections that are handed to it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, astuple
from types import FrameType
from typing import Any, NoReturn

from aggverify.errors import AggverifyError
from aggverify.world import answers, far, linux, meeting, slate, wire
from aggverify.world.backends import backend
from aggverify.world.faults import TemplateFailure
from aggverify.world.launcher import Launcher
from aggverify.world.meeting import Meeting, Met, Seat
from aggverify.world.opened import Opened
from aggverify.world.options import Options

ABANDONED = 2
"""Exit code of one whose driver has gone without a word."""
_FIRST_SPEAKS = 10.0
"""Seconds in which the first one says what is wrong: a launcher ends it when another has failed."""
_BUSY = 1.0
"""Seconds after which the driver is told that it is still at work."""


def main(control: int, parent: int) -> NoReturn:
    """Be the first host, beside the driver that has started this process."""
    _ends_with(parent)
    driver = socket.socket(fileno=control)
    first = wire.receive(driver)
    if first is None:
        os._exit(ABANDONED)
    sys.path[:] = first[0]["sys_path"]
    sys.exit(serve(Seat(**first[0]["seat"]), driver))


def beside(seat: Seat) -> int:
    """Be another host; its exit code. Says nothing: the first one does."""
    _ends_with(os.getppid())
    return serve(seat, None)


def _ends_with(parent: int) -> None:
    """End when that process does, in order."""

    def ends(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(ABANDONED)

    signal.signal(signal.SIGTERM, ends)
    linux.die_with_parent(parent, signal.SIGTERM)


def serve(seat: Seat, driver: socket.socket | None) -> int:
    """Meet the others and do what the driver says, until it says with which code to end.

    ``driver``: told by the first host where to listen, or why not.
    """
    launcher = Launcher()  # imports torch meanwhile
    try:
        try:
            store = seat.store()
            met, door = meeting.meet(seat, store)
        except Exception as error:
            if driver is not None:
                told = str(error) if isinstance(error, AggverifyError) else _unmet(seat, error)
                wire.send(driver, {"error": told})
            else:
                time.sleep(_FIRST_SPEAKS)
            return ABANDONED
        if driver is not None and door is not None:
            wire.send(
                driver, {"tickets": met.tickets, "machines": met.machines}, b"", [door.fileno()]
            )
            door.close()
        connection = meeting.dial(met, met.tickets[seat.number])
        return _Host(seat, met, connection, launcher).run()
    except (OSError, wire.WireError):  # the driver is gone
        return ABANDONED
    finally:
        launcher.close()


def _unmet(seat: Seat, error: Exception) -> str:
    said = str(error).partition("\n")[0]
    return (
        f"the {seat.size} processes that were launched do not find each other at "
        f"{seat.address}:{seat.port}: {said}"
    )


class _Held:
    """A template process of this host: what it says is handed on to the driver."""

    def __init__(self, opened: Opened, connection: socket.socket) -> None:
        self.opened = opened
        self.pages: dict[int, int] = {}
        self._connection = connection

    def relay(self) -> bool:
        """Hand on what has arrived; whether there may be more."""
        try:
            data = self.opened.connection.recv(1 << 16)
            self._connection.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._connection.close()  # by which the driver knows
        return bool(data)

    def printed(self) -> bool:
        """Read what nobody asks for; whether there may be more."""
        return self.opened.output.read() > 0

    def close(self) -> None:
        for page in self.pages.values():
            os.close(page)
        self._connection.close()
        self.opened.close()


class _Host:
    """Answers requests of the driver, one by one."""

    def __init__(self, seat: Seat, met: Met, connection: socket.socket, launcher: Launcher) -> None:
        self._seat, self._met = seat, met
        self._connection = connection
        self._launcher = launcher
        self._interface = meeting.interface_of(connection.getsockname()[0])
        self._held: dict[int, _Held] = {}
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._readers: dict[int, Callable[[], bool]] = {}
        self._said = 0.0

    def run(self) -> int:
        """Serve until the driver says how to end, or is gone; the exit code."""
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._connection.fileno():
                    message = wire.receive(self._connection)
                    if message is None:
                        return ABANDONED
                    request, _ = message
                    if request["op"] == "end":
                        code: int = request["code"]
                        return code
                    wire.send(self._connection, self._answer(request))
                elif (reader := self._readers.get(fd)) is not None and not reader():
                    self._forget(fd)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "open": self._open,
            "require": self._require,
            "close": self._close,
            "excess": self._excess,
            "world": self._world,
            "kill": self._kill,
            "look": self._look,
            "slept": self._slept,
            "child": self._child,
            "wake": self._wake,
            "ask": self._ask,
            "page": self._page,
        }
        try:
            return known[request["op"]](request)
        except AggverifyError as error:
            return {"error": str(error)}

    # -- templates --------------------------------------------------------------------------

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        limits = {**request["options"], "backend": backend(request["backend"])}
        opened = self._launcher.open(request["request"], Options(**limits, turn=self._still_here))
        if isinstance(opened, TemplateFailure):
            return {"failure": asdict(opened)}
        held = _Held(opened, meeting.dial(self._met, request["ticket"]))
        self._held[request["template"]] = held
        self._follow(opened.connection.fileno(), held.relay)
        self._follow(opened.output.fd, held.printed)
        return {"description": opened.description, "lacks_threads": opened.lacks_threads}

    def _still_here(self) -> None:
        now = time.monotonic()
        if now - self._said > _BUSY:
            self._said = now
            wire.send(self._connection, {"busy": True})

    def _require(self, request: dict[str, Any]) -> dict[str, Any]:
        self._launcher.require(backend(request["backend"]))
        return {}

    def _close(self, request: dict[str, Any]) -> dict[str, Any]:
        held = self._held.pop(request["template"], None)
        if held is not None:
            self._launcher.kill(held.opened)
            for fd in (held.opened.connection.fileno(), held.opened.output.fd):
                self._forget(fd)
            held.close()
        return {}

    def _excess(self, request: dict[str, Any]) -> dict[str, Any]:
        held = self._held.get(request["template"])
        return {} if held is None else {"excess": astuple(self._launcher.excess(held.opened))}

    def _follow(self, fd: int, reader: Callable[[], bool]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._readers[fd] = reader

    def _forget(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # -- worlds -----------------------------------------------------------------------------

    def _world(self, request: dict[str, Any]) -> dict[str, Any]:
        held, number, size = self._held[request["template"]], request["world"], request["size"]
        part = f"{self._seat.part}/{request['template']}/{number}"
        where = Meeting(self._seat.address, self._seat.port, part, self._interface)
        message = {
            "op": "world",
            "world": number,
            "size": size,
            "ranks": [self._seat.number],
            "backend": request["backend"],
            "alone": request["alone"],
            "memory": request["memory"],
            "meeting": where,
        }
        with contextlib.ExitStack() as files:
            try:
                page = slate.create()
                held.pages[number] = page
                handed = []
                for ticket in request["tickets"]:
                    dialled = meeting.dial(self._met, ticket)
                    files.callback(dialled.close)
                    handed.append(dialled.fileno())
            except OSError as error:
                return {"refused": error.strerror or str(error)}
            with contextlib.suppress(OSError):  # it is gone, which the driver is told by its end
                wire.send(held.opened.connection, message, fds=[*handed, page])
        return {}

    def _kill(self, request: dict[str, Any]) -> dict[str, Any]:
        held = self._held.get(request["template"])
        if held is not None and (page := held.pages.pop(request["world"], None)) is not None:
            os.close(page)
            with contextlib.suppress(OSError):
                held.opened.end(request["world"])
        return {}

    # -- what is seen of its rank -------------------------------------------------------------

    def _look(self, request: dict[str, Any]) -> dict[str, Any]:
        near, pids = self._held[request["template"]].opened.sight, request["pids"]
        ticking = request.get("ticking")
        seen = (
            near.glance(pids) if ticking is None else near.look(pids, {t.encode() for t in ticking})
        )
        return far.sent(seen)

    def _slept(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"slept": self._held[request["template"]].opened.sight.slept(request["pid"])}

    def _child(self, request: dict[str, Any]) -> dict[str, Any]:
        near = self._held[request["template"]].opened.sight
        return {"child": near.child(self._seat.number, request["number"])}

    def _wake(self, request: dict[str, Any]) -> dict[str, Any]:
        self._held[request["template"]].opened.sight.wake()
        return {}

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        near = self._held[request["template"]].opened.sight
        near.ask(request["pid"], wake=request["wake"])
        return {}

    def _page(self, request: dict[str, Any]) -> dict[str, Any]:
        page = self._held[request["template"]].pages[request["world"]]
        size = min(request["size"], answers.SMALL)
        data = os.pread(page, size, request["at"]).rstrip(b"\0")
        return {"data": data.decode("latin-1"), "size": os.fstat(page).st_size}
