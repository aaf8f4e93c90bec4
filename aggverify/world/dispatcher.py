"""Keeps the worlds of one template process fed, reads what they answer, replaces broken ones."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aggverify.world import linux, wire
from aggverify.world.faults import Fault
from aggverify.world.launcher import Opened
from aggverify.world.link import MUCH, Link, open_link
from aggverify.world.options import Options
from aggverify.world.world import Task, World

_START_ATTEMPTS = 2
# Dispatches of several jobs that came apart: code that often fails, or alters state in every call,
# is run one job at a time from then on.
_MOST_FALLEN = 8
_TEMPLATE_KILLED = "the process that ranks are forked from was killed while this job ran"
_PLENTY = 4
_GATHER = 0.001
# Nothing is due: only a safety net, since everything that happens makes a file readable.
_IDLE_WAIT = 1.0


class Dispatcher:
    """One event loop over the template process and the ranks of all its worlds.

    An OSError out of any method means that the template process is gone.
    """

    def __init__(self, opened: Opened, options: Options) -> None:
        self._opened = opened
        self._usual = self._options = options
        self._decoder = wire.Decoder()
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[int], None]] = {}
        self._worlds: dict[int, World] = {}
        self._waiting: dict[int, deque[Task]] = {}
        self._careful: dict[int, int] = {}
        self._failed_starts: dict[int, int] = {}
        # After the loss of a template: outcomes to see, one job at a time, to find the culprit.
        self._solo = 0
        self._fell_apart = 0
        self._born = 0
        self._watch(opened.connection.fileno(), self._on_process)
        self._watch(opened.output.fd, self._on_output)

    def add(self, tasks: Sequence[Task]) -> None:
        """Queue tasks for the worlds of their sizes."""
        for task in tasks:
            self._waiting.setdefault(task.job.world, deque()).append(task)

    def feed(self, now: float) -> None:
        """Start the worlds that have something to do, and hand them jobs."""
        for size, waiting in self._waiting.items():
            if not waiting or (self._solo and any(w.flying for w in self._worlds.values())):
                continue
            world = self._worlds.get(size)
            if world is not None and waiting[0].job.fresh and world.done and not world.flying:
                self._careful[size] = world.careful
                self._discard(world)
                world = None
            world = world or self._start(size, now)
            world.feed(
                waiting, now, single=bool(self._solo), together=self._fell_apart < _MOST_FALLEN
            )
            for link in world.links:
                if link.out and not link.ended:
                    self._epoll.modify(link.sock, select.EPOLLIN | select.EPOLLOUT)

    def step(self, done: Callable[[], bool]) -> None:
        """One turn of the loop."""
        self._advance(time.monotonic())
        # After that: a world that has just become ready or been replaced has work to get.
        self.feed(time.monotonic())
        if not done():
            self._poll()

    def calm(self) -> None:
        """Jobs get the usual time again, whatever has run away before."""
        self._limit(self._usual)

    def restart(self) -> None:
        """Replace every world; jobs in flight run again."""
        for world in list(self._worlds.values()):
            self._requeue(world)
            self._discard(world)

    def salvage(self) -> list[Task]:
        """After the loss of the template: the tasks that have no outcome, those in flight first.

        Any job in flight may be to blame. The first loss blames none, all run again one by one;
        then the only one in flight is the one.
        """
        flying = [task for world in self._worlds.values() for task in world.in_flight]
        for world in self._worlds.values():
            world.flying.clear()
        if self._solo and flying:
            flying.pop(0).deliver(Fault("died", None, _TEMPLATE_KILLED))
        for task in flying:
            task.suspect = True
        return [*flying, *(task for waiting in self._waiting.values() for task in waiting)]

    def take_over(self, tasks: Sequence[Task]) -> None:
        """Go on where a lost template left off."""
        self.add(tasks)
        self._solo = sum(task.suspect for task in tasks)

    def close(self) -> None:
        """Let go of connections; the processes are the launcher's business."""
        for world in self._worlds.values():
            # Should the launcher have crashed, nobody else ends what the ranks have started.
            if (leader := world.links[0].pid) is not None:
                linux.kill_group(leader)
            world.close()
        self._worlds.clear()
        self._epoll.close()

    # -- the loop ---------------------------------------------------------------------------

    def _poll(self) -> None:
        now = time.monotonic()
        dues = [due for w in self._worlds.values() if (due := w.due(now)) is not None]
        if min((len(w.in_flight) for w in self._worlds.values() if w.flying), default=0) > _PLENTY:
            # The ranks have enough to do: let answers gather rather than take a processor from
            # them for each.
            time.sleep(_GATHER)
        for fd, _ in self._epoll.poll(min(dues, default=_IDLE_WAIT)):
            if (reader := self._readers.get(fd)) is not None:
                reader(fd)

    def _advance(self, now: float) -> None:
        for world in list(self._worlds.values()):
            again: list[Task] = []
            for task, outcome in world.advance(now):
                if outcome is None:
                    task.alone = True
                    again.append(task)
                else:
                    if isinstance(outcome, Fault) and outcome.kind == "runaway":
                        self._hurry()
                    task.deliver(outcome)
                    self._solo -= task.suspect
            self._fell_apart += bool(again)
            if world.ready:
                self._failed_starts.pop(world.size, None)
            if world.broken:
                self._careful[world.size] = world.careful
                self._requeue(world)
                self._discard(world)
                if world.failure is not None:
                    self._failed_start(world.size, world.failure)
            self._waiting.setdefault(world.size, deque()).extendleft(reversed(again))

    def _hurry(self) -> None:
        """Jobs that do not say their own get less time once one has run away."""
        hurried = min(self._usual.cpu_seconds, self._usual.cpu_seconds_after)
        self._limit(replace(self._usual, cpu_seconds=hurried))

    def _limit(self, options: Options) -> None:
        self._options = options
        for world in self._worlds.values():
            world.options = options

    def _requeue(self, world: World) -> None:
        waiting = self._waiting.setdefault(world.size, deque())
        waiting.extendleft(reversed(world.in_flight))
        world.flying.clear()

    def _failed_start(self, size: int, failure: Fault) -> None:
        """After some attempts a world that does not start is the outcome of all its jobs."""
        attempts = self._failed_starts[size] = self._failed_starts.get(size, 0) + 1
        if attempts >= _START_ATTEMPTS:
            while self._waiting[size]:
                self._waiting[size].popleft().deliver(failure)

    # -- processes --------------------------------------------------------------------------

    def _start(self, size: int, now: float) -> World:
        self._born += 1
        links, handed = [], []
        for rank in range(size):
            link, fds = open_link(rank)
            links.append(link)
            handed.append(fds)
        world = World(self._born, links, self._options, now, self._careful.pop(size, 0))
        self._worlds[size] = world
        for link in links:
            self._watch_link(world, link)
        try:
            self._send(
                {
                    "op": "world",
                    "world": self._born,
                    "size": size,
                    "backend": self._options.backend.name,
                    "memory": self._options.memory,
                },
                [fd for fds in handed for fd in fds],
            )
        finally:
            for connection, output, _ in handed:
                os.close(connection)
                os.close(output)
        return world

    def _watch_link(self, world: World, link: Link) -> None:
        def on_connection(fd: int) -> None:
            link.write()
            if link.read():
                world.watchdog.progress(time.monotonic())
            if link.ended:
                self._unwatch(fd)
            elif not link.out:
                self._epoll.modify(fd, select.EPOLLIN)

        def on_output(fd: int) -> None:
            size = link.output.read()
            world.watchdog.stirred(held_up=size >= MUCH)
            if not size:
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
        del self._worlds[world.size]
        world.close()
        self._send({"op": "kill", "world": world.number})

    def _send(self, request: dict[str, Any], fds: Sequence[int] = ()) -> None:
        wire.send(self._opened.connection, request, fds=fds)

    def _on_output(self, fd: int) -> None:
        if not self._opened.output.read():
            self._unwatch(fd)

    def _on_process(self, fd: int) -> None:
        data = self._opened.connection.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the template process ended")
        for header, _ in self._decoder.feed(data):
            for world in self._worlds.values():
                if world.number == header["world"]:
                    world.links[header["rank"]].exit_status = header["exit"]
