"""A handler's template process and its worlds, driven from the parent."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aggverify.errors import InputError
from aggverify.world import wire
from aggverify.world.faults import Fault, Job, Outcome, PoolError
from aggverify.world.link import Link, Output, open_link
from aggverify.world.options import Options
from aggverify.world.world import Task, World

if TYPE_CHECKING:
    from aggverify.world.pool import Pool

_MAX_RANKS = 64
_START_ATTEMPTS = 2


@dataclass(slots=True)
class Pending:
    """Jobs that were submitted and may still be running."""

    _template: Template
    _outcomes: list[Outcome | None]
    _left: int

    @property
    def done(self) -> bool:
        """Whether every outcome is there."""
        return self._left == 0

    def wait(self) -> list[Outcome]:
        """Outcomes in the order of the jobs; raises PoolError when the pool breaks down."""
        self._template.drive(lambda: self._left == 0)
        return [outcome for outcome in self._outcomes if outcome is not None]

    def deliver(self, index: int, outcome: Outcome) -> None:
        """Take one outcome."""
        self._outcomes[index] = outcome
        self._left -= 1


class Template:
    """Worlds of ranks that all hold the same handler; ``description`` is what it described."""

    def __init__(
        self,
        connection: socket.socket,
        output: Output,
        slate: int,
        description: dict[str, Any],
        options: Options,
        revive: Callable[[], tuple[socket.socket, Output, int]],
    ) -> None:
        self.description = description
        self._connection = connection
        self._output = output
        self._slate = slate
        self._options = options
        self._revive = revive
        self._decoder = wire.Decoder()
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[int], None]] = {}
        self._worlds: dict[int, World] = {}
        self._waiting: dict[int, deque[Task]] = {}
        self._careful: dict[int, int] = {}
        self._failed_starts: dict[int, int] = {}
        self._born = 0
        self._closed = False
        self._watch_process()

    def submit(self, jobs: Sequence[Job]) -> Pending:
        """Send jobs off, each to the world of its size; worlds run concurrently."""
        self._check_open()
        pending = Pending(self, [None] * len(jobs), len(jobs))
        tasks = [Task(pending, i, job, _frame(i, job)) for i, job in enumerate(jobs)]
        for task in tasks:
            self._waiting.setdefault(task.job.world, deque()).append(task)
        self._feed(time.monotonic())
        return pending

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs and wait; outcomes in the order of the jobs, faults are values."""
        return self.submit(jobs).wait()

    def restart_worlds(self) -> None:
        """Replace every world, so that nothing of earlier jobs can remain."""
        self._check_open()
        for world in list(self._worlds.values()):
            self._requeue(world)
            self._discard(world)

    def close(self) -> None:
        """End every rank and the template process."""
        if self._closed:
            return
        self._closed = True
        for world in self._worlds.values():
            world.close()
        self._worlds.clear()
        self._connection.close()
        os.close(self._output.fd)
        os.close(self._slate)
        self._epoll.close()

    # -- the loop ---------------------------------------------------------------------------

    def drive(self, done: Callable[[], bool]) -> None:
        """Serve the worlds until ``done``; after an interruption all worlds are replaced."""
        self._check_open()
        try:
            while not done():
                now = time.monotonic()
                self._feed(now)
                self._advance(now)
                if done():
                    return
                self._poll(now)
        except BaseException:
            # Interrupted anywhere: the state of connections is unknown, the jobs are given up.
            self._waiting.clear()
            for world in list(self._worlds.values()):
                self._discard(world)
            raise

    def _poll(self, now: float) -> None:
        dues = [d for w in self._worlds.values() if (d := w.due(now)) is not None]
        for fd, _ in self._epoll.poll(min(dues, default=1.0)):
            if (reader := self._readers.get(fd)) is not None:
                reader(fd)

    def _feed(self, now: float) -> None:
        for size, waiting in self._waiting.items():
            if not waiting:
                continue
            world = self._worlds.get(size) or self._start(size, now)
            world.feed(waiting, now)
            self._arm(world)

    def _arm(self, world: World) -> None:
        for link in world.links:
            events = select.EPOLLIN | (select.EPOLLOUT if link.out else 0)
            if not link.ended:
                self._epoll.modify(link.sock, events)

    def _advance(self, now: float) -> None:
        for world in list(self._worlds.values()):
            for task, outcome in world.advance(now):
                task.pending.deliver(task.index, outcome)
            if world.ready:
                self._failed_starts.pop(world.size, None)
            if world.broken:
                self._replace(world)

    def _replace(self, world: World) -> None:
        self._careful[world.size] = world.careful
        self._requeue(world)
        if world.failure is not None:
            self._give_up_start(world, world.failure)
        self._discard(world)

    def _requeue(self, world: World) -> None:
        waiting = self._waiting.setdefault(world.size, deque())
        waiting.extendleft(reversed(world.flying))
        world.flying.clear()

    def _give_up_start(self, world: World, failure: Fault) -> None:
        """After some attempts a world that does not start is the outcome of all its jobs."""
        attempts = self._failed_starts[world.size] = self._failed_starts.get(world.size, 0) + 1
        if attempts < _START_ATTEMPTS:
            return
        for task in self._waiting.pop(world.size, ()):
            task.pending.deliver(task.index, failure)

    # -- processes --------------------------------------------------------------------------

    def _start(self, size: int, now: float) -> World:
        self._born += 1
        opened = [open_link(rank) for rank in range(size)]
        links = [link for link, _ in opened]
        handed = [fd for _, fds in opened for fd in fds]
        request = {
            "op": "world", "world": self._born, "size": size, "memory": self._options.memory
        }  # fmt: skip
        self._send(request, handed)
        for _, (connection, output, _slate) in opened:
            os.close(connection)
            os.close(output)
        world = World(self._born, links, self._options, now, self._careful.pop(size, 0))
        self._worlds[size] = world
        for link in links:
            self._watch_link(world, link)
        return world

    def _watch_link(self, world: World, link: Link) -> None:
        def on_connection(fd: int) -> None:
            before = len(link.replies)
            link.write()
            link.read()
            if link.ended:
                self._unwatch(fd)
            elif not link.out:
                self._epoll.modify(fd, select.EPOLLIN)
            if len(link.replies) > before or link.decoder.pending:
                world.watchdog.progress(time.monotonic())

        def on_output(fd: int) -> None:
            world.watchdog.progress(time.monotonic())
            if not link.output.read():
                self._unwatch(fd)

        self._watch(link.sock.fileno(), on_connection)
        self._watch(link.output.fd, on_output)

    def _watch(self, fd: int, reader: Callable[[int], None]) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = reader

    def _unwatch(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _discard(self, world: World) -> None:
        for link in world.links:
            self._unwatch(link.sock.fileno())
            self._unwatch(link.output.fd)
        if self._worlds.get(world.size) is world:
            del self._worlds[world.size]
        world.close()
        self._send({"op": "kill", "world": world.number})

    def _send(self, request: dict[str, Any], fds: Sequence[int] = ()) -> None:
        wire.send(self._connection, request, fds=fds)

    def _watch_process(self) -> None:
        self._watch(self._connection.fileno(), self._on_process)
        self._watch(self._output.fd, self._on_output)

    def _on_output(self, fd: int) -> None:
        if not self._output.read():
            self._unwatch(fd)

    def _on_process(self, fd: int) -> None:
        data = self._connection.recv(1 << 16)
        if not data:
            raise PoolError("the template process died")
        for header, _ in self._decoder.feed(data):
            for world in self._worlds.values():
                if world.number == header["world"]:
                    world.links[header["rank"]].exit_status = header["exit"]

    def _check_open(self) -> None:
        if self._closed:
            raise PoolError("the template is closed; make another with pool.template(...)")


def _frame(index: int, job: Job) -> bytes:
    if (
        isinstance(job.world, bool)
        or not isinstance(job.world, int)
        or not (1 <= job.world <= _MAX_RANKS)
    ):
        raise InputError(f"job {index}: world must be 1 to {_MAX_RANKS} ranks, not {job.world!r}")
    try:
        return wire.encode({"job": dict(job.payload)})
    except (TypeError, ValueError) as error:
        raise InputError(f"job {index}: payload is not JSON-able: {error}") from error
