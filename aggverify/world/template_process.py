"""The template's side: import the handler once, fork worlds of ranks from there.

It stays single-threaded and never calls the handler, so that every world starts from the same
state. Should the import itself have started threads, which a fork would lose and ranks may need,
ranks are forked from a template that has not imported anything, and import for themselves.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from aggverify.world import devices, forking, launched, linux, rank, wire
from aggverify.world.backends import Backend, RankPlace, backend
from aggverify.world.candidate_errors import raised
from aggverify.world.resource_headroom import NO_MORE
from aggverify.world.threads import left_over

_ROOM_TO_REPORT = 1 << 26
"""Bytes beyond its limit for what an import that reached it is reported with."""


def serve(fds: list[int], request: dict[str, Any], parent: int) -> NoReturn:
    """Be a template until the control connection ends; never returns."""
    control, output, recorder = fds
    linux.die_with_parent(parent)
    linux.adopt_orphans()
    os.setpgid(0, 0)  # what the import starts can be ended at one blow, and nothing else with it
    connection = socket.socket(fileno=control)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    rank.dump_stacks_to(recorder)
    os.environ.update(backend(request["backend"]).own)
    sys.path[:0] = request["paths"]
    try:
        if (handler := _prepared(connection, request)) is not None:
            _Template(connection, handler, request).run()
    finally:  # whatever the code under test has done to this process
        linux.end_descendants()
        os._exit(0)


def _prepared(connection: socket.socket, request: dict[str, Any]) -> tuple[Any] | None:
    """Return the handler in a tuple, None in its place where each rank imports for itself.

    None without a tuple where it cannot be constructed, and there is nothing to serve.
    """
    if request["late"]:
        wire.send(connection, {"description": {}, "threads": "none", "cuda": False})
        return (None,)
    me, streams = os.getpid(), _Streams()
    try:
        with _bounded(request["memory"]):
            handler = rank.construct(request)
        streams.restore()
        rank.seed_generators()
        ready = {
            "description": handler.describe(),
            "threads": left_over(),
            "cuda": forking.cuda_runs(),
        }
        if os.getpid() != me:
            return None  # a process forked by the import, that came back here instead of ending
        wire.send(connection, ready)
    except BaseException as error:  # sys.exit included
        if os.getpid() == me:
            # Counted at once: processes that are refused one more, as this one may have been, end
            # soon. What these have started has another parent then, but the same group.
            below = max(len(linux.in_group(me)) - 1, len(linux.descendants(me)))
            wire.send(connection, {"error": raised(error).to_json(), "below": below})
        return None
    gc.collect()
    gc.freeze()
    return (handler,)


class _ChildSignal:
    """What the import does on SIGCHLD, set aside here and given back to ranks.

    Ignoring it has the kernel reap our ranks, and so may a handler.
    """

    def __init__(self) -> None:
        self._theirs = signal.getsignal(signal.SIGCHLD)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore(self) -> None:
        if self._theirs is not None:  # set by C code: its address is not known
            signal.signal(signal.SIGCHLD, self._theirs)


@contextlib.contextmanager
def _bounded(extra: int) -> Iterator[None]:
    """At most so many bytes more to write to: a MemoryError here, not the machine's end.

    Not address space, which libraries reserve by the gigabyte.
    """
    usual = resource.getrlimit(resource.RLIMIT_DATA)
    most = devices.written_to() + extra
    devices.limit(resource.RLIMIT_DATA, most)
    try:
        yield
    except BaseException:  # nothing is left to be run here but the report of it
        devices.limit(resource.RLIMIT_DATA, most + _ROOM_TO_REPORT)
        raise
    resource.setrlimit(resource.RLIMIT_DATA, usual)  # ranks have a limit of their own


class _Streams:
    """Standard streams as they are before the import, which may close or replace them."""

    def __init__(self) -> None:
        self._objects = sys.stdin, sys.stdout, sys.stderr
        self._files = [os.dup(fd) for fd in range(3)]

    def restore(self) -> None:
        """Numbers 0 to 2 as they were: what ranks are handed must not get one of those."""
        for fd, copy in enumerate(self._files):
            os.dup2(copy, fd)
            os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = self._objects
        if sys.stdout.closed or sys.stderr.closed:
            sys.stdout = open(1, "w", 1, closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115


class _Template:
    """Forks, reaps and kills ranks as asked."""

    def __init__(
        self, connection: socket.socket, handler: tuple[Any], request: dict[str, Any]
    ) -> None:
        self._connection = connection
        self._handler = handler[0]
        self._request = request
        self._places: dict[int, tuple[int, int]] = {}
        self._groups: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._watched: dict[int, int] = {}
        self._child_signal = _ChildSignal()
        # Processes that the import has started stay: they may serve every world.
        self._helpers = set(linux.children(os.getpid()))

    def run(self) -> None:
        """Serve until the end of stream."""
        blind = False
        while True:
            ready = {fd for fd, _ in self._poll.poll(20 if blind else None)}
            for fd in ready - {self._connection.fileno()}:
                self._reap(fd)
            # After reaping: a world that needs the room of all others waits for their end.
            if self._connection.fileno() in ready and not self._command():
                return
            blind = len(self._watched) < len(self._places)
            if blind:
                self._reap_any()

    def _command(self) -> bool:
        message = wire.receive(self._connection)
        if message is None:
            return False
        header, fds = message
        if header["op"] == "kill":
            self._kill(header["world"])
        else:
            self._world(header, fds)
        return True

    def _world(self, request: dict[str, Any], fds: list[int]) -> None:
        if request["alone"]:
            self._wait_for_all()
        number, r, ranks = request["world"], 0, request["ranks"]
        try:
            store, size = os.memfd_create("store"), request["size"]
            fds.append(store)
            # The kernel drops files that were sent where this process may open no more.
            if len(fds) != 3 * len(ranks) + 1:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            joined_by = backend(request["backend"])
            for n, r in enumerate(ranks):
                mine = fds[3 * n : 3 * n + 3]
                place = RankPlace(r, size)
                handed = rank.Handed(
                    mine[0], mine[1], mine[2], store, request["memory"], request.get("rendezvous")
                )
                live = self._as_rank(place, joined_by, handed)
                self._fork(number, r, live, [fd for fd in fds[:-1] if fd not in mine])
        except OSError as error:
            if error.errno not in NO_MORE:
                raise
            refused = {"refused": os.strerror(error.errno), "world": number, "rank": r}
            wire.send(self._connection, refused)
        finally:
            for fd in fds:
                os.close(fd)

    def _wait_for_all(self) -> None:
        """Wait until no rank is left: all were killed before, and the next world needs the room."""
        while self._places:
            for fd, _ in self._poll.poll(20):
                if fd != self._connection.fileno():
                    self._reap(fd)
            self._reap_any()

    def _as_rank(
        self, place: RankPlace, joined_by: Backend, handed: rank.Handed
    ) -> Callable[[], None]:
        """Return what a fork does to be that rank."""
        if self._request.get("launched"):
            return functools.partial(launched.become, place, joined_by.name, handed, self._request)
        return functools.partial(rank.live, place, joined_by, handed, self._make_handler)

    def _fork(self, world: int, number: int, live: Callable[[], None], others: list[int]) -> None:
        me = os.getpid()
        pid = forking.fork()
        if pid == 0:
            try:
                linux.die_with_parent(me)
                os.setpgid(0, self._groups.get(world, 0))
                # While a sibling holds a dead rank's connection, its end is not seen.
                for fd in (*others, self._connection.fileno(), *self._watched):
                    os.close(fd)
                self._child_signal.restore()
                live()
            finally:
                os._exit(0)
        with contextlib.suppress(OSError):  # the child did it first, or is gone
            os.setpgid(pid, self._groups.get(world, pid))
        self._groups.setdefault(world, pid)
        self._places[pid] = (world, number)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, *NO_MORE):
                raise
            return  # an old kernel, or no more files: look from time to time instead
        self._watched[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)

    def _make_handler(self) -> Any:
        return rank.construct(self._request) if self._handler is None else self._handler

    def _reap(self, pidfd: int) -> None:
        pid = self._watched.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._gone(pid, status)

    def _reap_any(self) -> None:
        for pid in set(self._places) - set(self._watched.values()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._gone(pid, status)

    def _gone(self, pid: int, status: int) -> None:
        world, place = self._places.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        wire.send(self._connection, {"exit": code, "world": world, "rank": place})
        self._end_strays()

    def _kill(self, world: int) -> None:
        if (group := self._groups.pop(world, None)) is not None:  # else none was started
            linux.kill_group(group)

    def _end_strays(self) -> None:
        """Kill processes that ranks have left behind, which become children of this process."""
        for pid in linux.children(os.getpid()):
            if pid not in self._places and pid not in self._helpers:
                linux.kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
