"""The parent's side of the fork server: start it, have it fork templates, end it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from aggverify.world import (
    answers,
    flight_recorder,
    linux,
    resource_headroom,
    sandbox,
    stacks,
    wire,
)
from aggverify.world.backends import Backend
from aggverify.world.candidate_errors import Raised
from aggverify.world.clock import Clock
from aggverify.world.evidence import threads_text
from aggverify.world.exits import exit_text, printed
from aggverify.world.faults import NO_EXCESS, PoolError, ResourceOveruse, TemplateFailure, Unusable
from aggverify.world.link import open_link
from aggverify.world.local_template import LocalTemplate
from aggverify.world.options import MOST_HELPERS, Options
from aggverify.world.process_inspector import HERE
from aggverify.world.sandbox import Sandbox
from aggverify.world.starting import no_room, start
from aggverify.world.threads import Threads
from aggverify.world.watchdog import Watchdog

_OUTPUT_KEPT = 8_000
_MOST_READ = 1 << 26
"""Bytes of the message in which a template process describes its handler."""
_TURN = 0.1
"""Seconds between calls of ``Options.turn`` while something is waited for."""
_CUDA = (
    "the import initialises CUDA, which ranks forked after it could not use: make the first CUDA "
    "call inside a function"
)
_OUTSIDE = (
    "the launcher could not enter its control group {}: memory and processes of ranks are "
    "counted twice a second instead of held by the kernel"
)


class ForkServer:
    """The launcher process. It imports torch, then ``preload``, while the parent goes on."""

    def __init__(self, inside: Sandbox | None = None, preload: str = "") -> None:
        self.mark = uuid.uuid4().hex
        """In the environment of all its processes, by which ``end_marked`` finds them."""
        try:
            self._started = start(self.mark, inside)
        except OSError as error:
            raise no_room(error) from None
        self._process, self._connection = self._started.process, self._started.connection
        self._ready = False
        self._closed = False
        self._exits: dict[int, int] = {}
        self._excesses: dict[int, ResourceOveruse] = {}
        self._devices: dict[str, int] = {}
        self._turn: Callable[[], None] = lambda: None
        self._silence = Options().silence
        with contextlib.suppress(OSError):  # already dead: found by the first request
            path = [entry or str(Path.cwd()) for entry in sys.path]
            wire.send(self._connection, {"sys_path": path, "preload": preload})

    @property
    def gone(self) -> bool:
        """Whether it is to be replaced; not where the next request reports why it did not start."""
        return self._closed or (self._ready and self._process.poll() is not None)

    @property
    def ready(self) -> bool:
        """Whether it answers at once, be it that it cannot start; False while it imports torch."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return self._ready or bool(poll.poll(0))

    def begin(self, request: dict[str, Any], options: Options) -> LocalTemplate:
        """Fork a template, which constructs its handler while the caller goes on."""
        with self._serving(options):
            self.require(options.backend)
            return self._forked({"late": False, **request}, options)

    def finish(
        self, template: LocalTemplate, request: dict[str, Any], options: Options
    ) -> LocalTemplate | TemplateFailure:
        """Wait until the handler of a template that has begun is constructed."""
        with self._serving(options):
            threads = self._constructed(template, options)
            if isinstance(threads, TemplateFailure):
                return threads
            template.lacks_threads = threads == "asleep"
            if threads in ("none", "asleep"):
                return template
            # The import started threads that a fork would lose. Ranks come from a template that
            # has not imported anything, and each imports for itself.
            self.kill(template.number)
            template.close()
            late = self._forked({**request, "late": True}, options)
            failed = self._constructed(late, options)
            late.description = template.description
            return failed if isinstance(failed, TemplateFailure) else late

    @contextlib.contextmanager
    def _serving(self, options: Options) -> Iterator[None]:
        """Wait as these options have it."""
        self._turn, usual = options.turn, self._silence
        self._silence = options.silence
        try:
            yield
        finally:
            self._silence = usual

    def require(self, backend: Backend) -> int:
        """Return how many devices it has; raises PoolError where it cannot join ranks."""
        if backend.name in self._devices:
            return self._devices[backend.name]
        self._wait_until_ready()
        try:
            self._send({"op": "backend", "name": backend.name}, [])
            found: tuple[int, str | None] = self._until(lambda message: message.get("usable"))
        except BaseException:
            self.close()  # as after any request whose answer is still to come
            raise
        devices, why_not = found
        if why_not is not None:
            raise Unusable(why_not)
        self._devices[backend.name] = devices
        return devices

    def kill(self, pid: int) -> None:
        """End a template and everything below it."""
        with contextlib.suppress(OSError):  # the launcher is gone, and with it the template
            wire.send(self._connection, {"op": "kill", "pid": pid})

    def close(self) -> None:
        """End every process; returns when they are gone."""
        if self._closed:
            return
        self._closed = True
        self._connection.close()
        if not self._ready:
            # Nothing below it yet, and it may be importing for a while.
            self._process.kill()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._started.output)
        if self._process.returncode != 0 and self._ready:
            linux.end_marked(self.mark)
        if self._started.group is not None:
            self._started.group.close()

    def _forked(self, request: dict[str, Any], options: Options) -> LocalTemplate:
        self._wait_until_ready()
        try:
            link, (theirs, write, page) = open_link(0)
        except OSError as error:
            raise no_room(error) from None
        link.sock.setblocking(True)
        template = LocalTemplate(link.sock, link.output, page, linux.NO_PROCESS, 0, {}, self.mark)
        with self._undisturbed(template):
            message = {
                **request,
                "op": "fork",
                "backend": options.backend.name,
                "memory": options.import_memory,
                "held": self._started.most,
            }
            try:
                self._send(message, [theirs, write, page])
            finally:
                # Were these kept open here, the end of the template would not be seen.
                os.close(theirs)
                os.close(write)
            template.number = self._until(lambda message: message.get("forked"))
            # An earlier template may have had the same pid.
            self._exits.pop(template.number, None)
            self._excesses.pop(template.number, None)
            template.pid = linux.child(self._started.pid, template.number)
        return template

    @contextlib.contextmanager
    def _undisturbed(self, template: LocalTemplate) -> Iterator[None]:
        try:
            yield
        except BaseException:
            template.close()
            # Interrupted anywhere: what the launcher still has to send would be taken for the
            # answer to the next request.
            self.close()
            raise

    def _constructed(self, template: LocalTemplate, options: Options) -> Threads | TemplateFailure:
        """Wait for the handler's description; return which threads the import has left."""
        with self._undisturbed(template):
            answer = self._answered(template, options)
        if isinstance(answer, TemplateFailure):
            self.kill(template.number)
            template.close()
            return answer
        template.description = answer["description"]
        threads: Threads = answer["threads"]
        return threads

    def _answered(
        self, template: LocalTemplate, options: Options
    ) -> dict[str, Any] | TemplateFailure:
        """Wait for the handler, reading what is printed meanwhile."""
        poll = select.poll()
        poll.register(template.connection, select.POLLIN)
        poll.register(template.output.fd, select.POLLIN)
        decoder, clock = wire.Decoder(_MOST_READ), Clock()
        watchdog = Watchdog(options.import_patience)
        watchdog.progress(clock.now())
        while True:
            self._turn()
            wait = min(max(0.0, watchdog.next_look - clock.now()), _TURN)
            for fd, _ in poll.poll(1000 * wait):
                if fd == template.connection.fileno():
                    if (answer := self._heard(template, decoder)) is not None:
                        return answer
                elif not template.output.read():
                    poll.unregister(fd)
            if template.output.size > options.printed:
                return template.hung("runaway", f"the import {printed(options.printed)}")
            now = clock.now()
            if clock.away:
                clock.away = False
                watchdog.progress(now)
            if now >= watchdog.next_look:
                if watchdog.blocked([template.pid], now):
                    text = f"the import sleeps or waits, for {options.import_patience:g} s so far"
                    return template.hung("blocked", text)
                if watchdog.cpu_since_progress().get(template.pid, 0) > options.import_seconds:
                    text = f"the import took {options.import_seconds:g} s of processor time so far"
                    return template.hung("runaway", text)

    def _heard(
        self, template: LocalTemplate, decoder: wire.Decoder
    ) -> dict[str, Any] | TemplateFailure | None:
        """Read what has arrived; return the template's message, checked, once it is complete."""
        try:
            data = template.connection.recv(1 << 18)
        except OSError:
            data = b""
        try:
            frames = list(decoder.feed(data))
            for header, _ in frames:
                answers.constructed(header)
            if len(frames) > 1 or (frames and decoder.under_way):
                raise wire.WireError("more than one")
        except wire.WireError as error:
            text = f"the process sent what is no answer while importing: {error}"
            return TemplateFailure("died", text, output=template.output.drain())
        if not data or frames:
            return self._answer(template, frames[0][0] if frames else None)
        return None

    def _answer(
        self, template: LocalTemplate, header: dict[str, Any] | None
    ) -> dict[str, Any] | TemplateFailure:
        if header is None:
            status = self._exit_status(template.number)
            crash, threads = stacks.parse(flight_recorder.dump(template.recorder))
            excess = self._excesses.pop(template.number, NO_EXCESS)
            text = excess.text if excess else f"the process {exit_text(status)} while importing"
            shown = threads_text(threads, crash)
            return TemplateFailure("died", text, shown, template.output.drain(), status)
        if "error" in header:
            error = Raised.from_json(header["error"])
            shown = error.traceback
            # The process that was refused one more may have started all the others since the fork
            # server last counted them.
            crowd = header["below"] > MOST_HELPERS and resource_headroom.ran_out(error.text)
            kind: Literal["died", "exception"] = "died" if crowd else "exception"
            text = ResourceOveruse(processes=header["below"]).text if crowd else error.text
            return TemplateFailure(kind, text, shown, template.output.drain())
        if header["cuda"]:
            return TemplateFailure("cuda", _CUDA, output=template.output.drain())
        return header

    def excess(self, pid: int) -> ResourceOveruse:
        """Return what a template was ended for."""
        self._exit_status(pid)
        return self._excesses.pop(pid)

    def _exit_status(self, pid: int) -> int:
        if pid not in self._exits:
            # Its connection has ended: it is dying, or has only closed the connection.
            self.kill(pid)
            self._until(lambda _: pid in self._exits or None)
        return self._exits.pop(pid)

    def _wait_until_ready(self) -> None:
        if not self._ready:
            try:
                self._until(lambda message: message.get("ready"))
            except PoolError:
                self.close()  # the next request starts another one
                raise
            self._ready = True
            group = self._started.group
            if group is not None and not group.holds(self._started.pid):
                warnings.warn(_OUTSIDE.format(", ".join(map(str, group.folders))), stacklevel=2)

    def _until(self, wanted: Callable[[dict[str, Any]], Any]) -> Any:
        """Read the launcher's messages until ``wanted`` finds something in one."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while True:
            self._wait_for(poll)
            try:
                message = wire.receive(self._connection)
            except (wire.WireError, OSError):
                message = None
            if message is None:
                raise self._lost()
            header, _ = message
            if "error" in header:
                raise PoolError(f"ranks need torch, which fails to import:\n{header['error']}")
            if "exit" in header:
                self._exits[header["pid"]] = header["exit"]
                self._excesses[header["pid"]] = ResourceOveruse(*header["excess"])
            if "refused" in header:
                raise no_room(OSError(*header["refused"]))
            if (found := wanted(header)) is not None:
                return found

    def _wait_for(self, poll: select.poll) -> None:
        """Wait until there is something to read; PoolError where the process sleeps too long."""
        clock = Clock()
        ends = clock.now() + self._silence
        while not poll.poll(1000 * _TURN):
            self._turn()
            if HERE.glance([self._started.pid]).running:
                ends = clock.now() + self._silence
            elif clock.now() > ends:
                self._process.kill()  # it may be stopped
                raise PoolError(f"the launcher process has slept for {self._silence:g} s")

    def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            wire.send(self._connection, message, fds=fds)
        except OSError:
            raise self._lost() from None

    def _lost(self) -> PoolError:
        status, output = self._process.wait(), self._started.output
        size = os.fstat(output).st_size
        tail = os.pread(output, _OUTPUT_KEPT, max(0, size - _OUTPUT_KEPT)).decode(errors="replace")
        if self._started.inside and not self._ready and tail.startswith(sandbox.MAKER):
            return PoolError(sandbox.refused(tail.strip()))
        text = f"the launcher process {exit_text(status)}"
        return PoolError(f"{text}:\n{tail}" if tail else text)
