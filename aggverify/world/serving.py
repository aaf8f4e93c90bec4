"""One of the processes that torchrun or srun has started: has a rank of every world.

It has its own launcher, as a pool has, and does with it what the driver (``cluster``) asks for:
constructs handlers, forks its rank of a world, looks at the process of that rank. What the rank
sends is read and checked here, and sent on to the driver, which checks it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, replace
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from aggverify.errors import AggverifyError
from aggverify.world import answers, flight_recorder, linux, rendezvous, wire
from aggverify.world.backends import backend
from aggverify.world.faults import PoolError, TemplateFailure
from aggverify.world.in_flight import WorldKey
from aggverify.world.launching import NoRoom
from aggverify.world.link import Link, Printed
from aggverify.world.local_launcher import LocalLauncher
from aggverify.world.local_template import LocalTemplate
from aggverify.world.mail import Post, ReadableQueue
from aggverify.world.options import Options
from aggverify.world.process_inspector import LocalInspector
from aggverify.world.remote_ranks import sent
from aggverify.world.rendezvous import RankInfo, Rendezvous

ABANDONED = 2
"""Exit code of one whose driver has gone without a word."""
_FIRST_SPEAKS = 10.0
"""Seconds left to the first process, whose message is the one to be printed: torchrun and srun end
it as soon as another one has failed."""
_SHOWN = 1 << 13
"""Bytes sent on of the beginning, and of the end, of what a rank prints at a time."""

Request = dict[str, Any]
Answer = dict[str, Any]


def main(path: str, parent: int) -> NoReturn:
    """Be the first of them: a process that the driver, which torchrun has started, has made."""
    sys.path[:] = json.loads(path)
    _ends_with(parent)
    info = rendezvous.rank_info(os.environ)
    sys.exit(ABANDONED if info is None else serve(replace(info, serves=False)))


def node_agent(info: RankInfo) -> int:
    """Be one of the others; the exit code. Only the first one prints."""
    _ends_with(os.getppid())
    return serve(info)


def _ends_with(parent: int) -> None:
    """End when that process does, by an exception, so that what was opened is closed."""

    def ends(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(ABANDONED)

    signal.signal(signal.SIGTERM, ends)
    linux.die_with_parent(parent, signal.SIGTERM)


def serve(info: RankInfo) -> int:
    """Do what the driver asks for, until it sends the exit code."""
    launcher = LocalLauncher()  # imports torch meanwhile
    letters = ReadableQueue()
    try:
        try:
            post = Post(info, f"host/{info.number}", letters.put, letters.put)
        except RuntimeError:
            time.sleep(_FIRST_SPEAKS)
            return ABANDONED
        post.watch(["driver"])
        try:
            code = _Serving(info, launcher, post, letters).run()
        except SystemExit:
            post.send("driver", {"from": info.number, "gone": "it was sent a signal to end"})
            raise
        post.close()
        return code
    except PoolError:  # the store is gone
        return ABANDONED
    finally:
        launcher.close()


class _ForwardedLink(Link):
    """A rank's link whose answers go on to the driver as they are."""

    __slots__ = ("report",)

    report: Callable[[str, Any, bytes], None]

    def _take(self, header: dict[str, Any], blob: bytes) -> None:
        Link._take(self, header, blob)
        self.replies.clear()
        self.report("said", None, wire.encode(header, blob))


class _ForwardedOutput(Printed):
    """Sends on to the driver what a rank prints: how much, with its beginning and its end."""

    def __init__(self, report: Callable[[str, Any, bytes], None]) -> None:
        self._report = report

    def add(self, data: bytes) -> None:
        shown = data if len(data) <= 2 * _SHOWN else data[:_SHOWN] + data[-_SHOWN:]
        self._report("printed", len(data), shown)


class _HeldTemplate:
    """A template of this process, and the links of its ranks by world."""

    def __init__(self, template: LocalTemplate) -> None:
        self.template = template
        self.links: dict[int, Link] = {}


class _Serving:
    """Does what requests ask, one by one, and reports what ranks do."""

    def __init__(
        self, info: RankInfo, launcher: LocalLauncher, post: Post, letters: ReadableQueue
    ) -> None:
        self._info, self._launcher, self._post, self._letters = info, launcher, post, letters
        self._held: dict[int, _HeldTemplate] = {}
        self._poll = select.poll()
        self._poll.register(letters, select.POLLIN)
        self._readers: dict[int, Callable[[], bool]] = {}

    def run(self) -> int:
        """Serve until the driver sends how to end, or is lost; the exit code."""
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._letters.fileno():
                    for request, blob in self._letters.take_all():
                        if isinstance(request, str):  # who is lost: the driver, or the store
                            return ABANDONED
                        if (code := self._done(request, blob)) is not None:
                            return code
                elif (reader := self._readers.get(fd)) is not None and not reader():
                    self._forget(fd)

    def _report(self, header: dict[str, Any], blob: bytes = b"") -> None:
        self._post.send("driver", {"from": self._info.number, **header}, blob)

    def _done(self, request: Request, blob: bytes) -> int | None:
        """Do what is requested, and answer; the exit code where that is the request."""
        code: int | None = request["code"] if request["op"] == "end" else None
        try:
            answer = {} if code is not None else self._answer(request, blob)
        except AggverifyError as error:
            answer = {"error": str(error)}
        if "id" in request:
            self._report({"id": request["id"], "answer": answer})
        return code

    def _answer(self, request: Request, blob: bytes) -> Answer:
        match request["op"]:
            case "hello":
                return {
                    "machine": rendezvous.machine(),
                    "interface": rendezvous.interface(self._info),
                }
            case "open":
                return self._open(request)
            case "close":
                self._close(request["template"])
            case "excess" if held := self._held.get(request["template"]):
                return {"excess": astuple(self._launcher.excess(held.template))}
            case "world":
                return self._world(request)
            case "write":
                self._write(request, blob)
            case "kill":
                self._kill(request["template"], request["world"])
            case "page" | "drain":
                return self._of_rank(request)
            case "see" if held := self._held.get(request["template"]):
                return {"seen": seen(held.template.inspector, request["what"], request["with"])}
        return {}

    # -- templates --------------------------------------------------------------------------

    def _open(self, request: Request) -> Answer:
        limits = {**request["options"], "backend": backend(request["backend"])}
        template = self._launcher.open(request["request"], Options(**limits))
        if isinstance(template, TemplateFailure):
            return {"failure": asdict(template)}
        number = request["template"]
        self._held[number] = _HeldTemplate(template)
        for fd, read in template.watched().items():
            self._follow(fd, partial(self._ended, number, read))
        return {"description": template.description, "lacks_threads": template.lacks_threads}

    def _ended(self, template: int, read: Callable[[], Any]) -> bool:
        """Report what the template sends of its ranks; whether there may be more."""
        try:
            received = read()
        except OSError:
            self._report({"template": template, "over": True})
            return False
        for ending in received or ():
            self._report({"template": template, "ending": ending})
        return received is not None

    def _close(self, template: int) -> None:
        if (held := self._held.pop(template, None)) is not None:
            for link in held.links.values():
                self._let_go(link)
            self._launcher.kill(held.template)
            for fd in held.template.watched():
                self._forget(fd)
            held.template.close()

    def _follow(self, fd: int, reader: Callable[[], bool]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._readers[fd] = reader

    def _forget(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # -- worlds -----------------------------------------------------------------------------

    def _world(self, request: Request) -> Answer:
        template, world = request["template"], request["world"]
        held, me = self._held[template], self._info.number
        part = f"{self._info.part}/{template}/{world}"
        by = request["interface"] or rendezvous.interface(self._info)
        where = Rendezvous(self._info.address, self._info.port, part, by)
        key = WorldKey(request["size"], backend(request["backend"]))
        try:
            [made] = held.template.start(
                world, key, request["memory"], alone=request["alone"], ranks=[me], rendezvous=where
            )
        except NoRoom as error:
            return {"refused": str(error)}
        except OSError:  # it is gone, which the driver learns from its end
            return {}

        def report(what: str, value: Any, blob: bytes) -> None:
            self._report({"template": template, "world": world, what: value}, blob)

        link = held.links[world] = _ForwardedLink(me, made.sock, made.output, made.recorder)
        link.report = report
        link.output.copy_to = _ForwardedOutput(report)
        self._follow(link.sock.fileno(), lambda: self._read(link))
        self._follow(link.output.fd, lambda: link.output.read() > 0)
        return {}

    def _read(self, link: _ForwardedLink) -> bool:
        link.write()
        link.read()
        if link.ended:
            link.report("ended", link.garbage, b"")
        else:
            self._poll.modify(link.sock, _wanted(link))
        return not link.ended

    def _write(self, request: Request, blob: bytes) -> None:
        held = self._held.get(request["template"])
        link = None if held is None else held.links.get(request["world"])
        if link is None or link.ended:
            return
        link.asked, link.decoder.most = request["asked"], request["most"]
        link.out += blob
        link.write()
        self._poll.modify(link.sock, _wanted(link))

    def _kill(self, template: int, world: int) -> None:
        held = self._held.get(template)
        if held is not None and (link := held.links.pop(world, None)) is not None:
            self._let_go(link)
            with contextlib.suppress(OSError):
                held.template.end(world)

    def _let_go(self, link: Link) -> None:
        for fd in (link.sock.fileno(), link.output.fd):
            self._forget(fd)
        link.close()

    # -- what is seen of its rank -------------------------------------------------------------

    def _of_rank(self, request: Request) -> Answer:
        held = self._held.get(request["template"])
        link = None if held is None else held.links.get(request["world"])
        if link is None or not isinstance(link.recorder, int):
            return {"data": "", "size": 0}
        if request["op"] == "drain":
            link.output.drain()
            return {}
        size = min(request["size"], answers.SMALL)
        data = os.pread(link.recorder, size, request["at"]).rstrip(b"\0")
        return {
            "data": data.decode("latin-1"),
            "size": flight_recorder.DUMP + flight_recorder.dump_size(link.recorder),
        }


def seen(inspector: LocalInspector, what: str, more: dict[str, Any]) -> Any:
    """Look at the rank, and return what is seen of it as it is sent."""
    if "ticking" in more:
        more["ticking"] = {name.encode() for name in more["ticking"]}
    return sent(getattr(inspector, what)(**more))


def _wanted(link: Link) -> int:
    return select.POLLIN | select.POLLOUT if link.out else select.POLLIN
