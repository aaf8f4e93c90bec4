"""Keeps the worlds of one template process fed, reads what they answer, replaces broken ones.

One rule for all that can go wrong. Ranks have many jobs in flight and do not wait for each other
between them, so that one may die or hang while others are a job behind; jobs share dispatches, and
worlds the process they are forked from. On any anomaly all jobs in flight there run again, one by
one, beginning in a fresh world. Only a job that was in flight by itself has a final outcome then.
"""

from __future__ import annotations

import select
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from aggverify.world import answers, linux, memory, wire
from aggverify.world.clock import Clock
from aggverify.world.faults import NO_EXCESS, Fault, ResourceOveruse
from aggverify.world.in_flight import Task, WorldKey
from aggverify.world.launching import Ending, NoRoom, TemplateHandle
from aggverify.world.link import MUCH, Link, Printed
from aggverify.world.options import Options
from aggverify.world.world import World

# Anomalies after which jobs run one by one from the first: code that often fails, or alters state
# in every call, would have most jobs run twice.
_MOST_ANOMALIES = 8
# Jobs that are run again while no other ranks exist: a machine on which more need that has too
# little room to go on with.
_MOST_EXCLUSIVE = 20
_TEMPLATE_KILLED = "the process that ranks are forked from was killed while this job ran"
# With more jobs than this in flight, answers may gather for so many seconds before they are read.
_ENOUGH_IN_FLIGHT = 4
_GATHER_SECONDS = 0.001
# Longest wait where nothing is due: a safety net, since all that happens makes a file readable.
_IDLE_WAIT = 0.25


class Dispatcher:
    """One event loop over the template process and the ranks of all its worlds.

    An OSError out of any method means that the template process is gone.
    """

    def __init__(self, template: TemplateHandle, options: Options, printed: Printed) -> None:
        self._template, self._printed = template, printed
        self._given_options = self._options = options
        self._clock = Clock()
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[int], None]] = {}
        self._worlds: dict[WorldKey, World] = {}
        self._waiting: defaultdict[WorldKey, deque[Task]] = defaultdict(deque)
        # Tasks that run by themselves, with nothing in flight in any world.
        self._alone: deque[Task] = deque()
        self._anomalies = 0
        self._one_world = False
        self._exclusive_runs = 0
        self._born = 0
        self._oom_watch = memory.OomWatch()
        self._known: set[frozenset[tuple[str, int]]] = set()
        for fd, read in template.watched().items():
            self._watch(fd, partial(self._on_process, read))

    def add(self, tasks: Iterable[Task]) -> None:
        """Queue tasks for the worlds they are meant for."""
        for task in tasks:
            self._queue(task).append(task)

    def feed(self) -> None:
        """Start the worlds that have something to do, and hand them jobs."""
        now = self._clock.now()
        if not self._alone:
            for key, waiting in list(self._waiting.items()):
                if waiting and not self._held_up(key):
                    self._hand_over(
                        key, waiting, now, one_by_one=self._anomalies >= _MOST_ANOMALIES
                    )
        elif not any(world.flying for world in self._worlds.values()):
            self._hand_over(self._alone[0].key, self._alone, now, one_by_one=True)

    def _held_up(self, key: WorldKey) -> bool:
        """Whether other worlds must finish first, since the machine has room for one only.

        Of two worlds one would fail for want of room, and its jobs run again.
        """
        others = (world for other, world in self._worlds.items() if other != key)
        return self._one_world and any(world.flying or not world.ready for world in others)

    def _hand_over(
        self, key: WorldKey, waiting: deque[Task], now: float, *, one_by_one: bool
    ) -> None:
        world = self._worlds.get(key)
        if world is not None and waiting[0].job.fresh and world.done and not world.flying:
            self._discard(world)
            world = None
        all_afresh = waiting[0].exclusive and (world is None or world.used or len(self._worlds) > 1)
        if all_afresh or (world is None and self._one_world):
            for each in list(self._worlds.values()):
                self._discard(each)
            world = None
        alone = waiting[0].exclusive or self._one_world
        world = world or self._start(key, now, alone=alone)
        if world is None:
            return
        world.feed(waiting, now, one_by_one=one_by_one)
        for link in world.links:
            if link.out and not link.ended:
                self._epoll.modify(link.sock, select.EPOLLIN | select.EPOLLOUT)

    def step(self, done: Callable[[], bool]) -> None:
        """One turn of the loop."""
        now = self._clock.now()
        if self._clock.away:
            self._clock.away = False
            # This process was stopped: ranks may have answered meanwhile, so read that first.
            for world in self._worlds.values():
                world.watchdog.progress(now)
        else:
            self._advance(now)
        # After ``_advance``, so that a world that is now ready, or new, gets jobs at once.
        self.feed()
        if not done():
            self._poll()

    @property
    def loading(self) -> bool:
        """Whether all worlds that are busy are only starting, importing or preparing."""
        busy = False
        for world in self._worlds.values():
            if world.flying or not world.ready:
                if not world.loading:
                    return False
                busy = True
        return busy

    @property
    def contention(self) -> float:
        """How many times longer ranks take than on an idle machine; 1.0 where they are far away."""
        links = (link for world in self._worlds.values() for link in world.links)
        pids = [link.pid for link in links if link.pid is not None]
        return self._template.inspector.contention(pids)

    def calm(self) -> None:
        """Reset what earlier anomalies and runaway jobs have changed: time limits, one by one."""
        self._apply(self._given_options)
        self._anomalies = 0
        self._known.clear()

    def careful(self) -> None:
        """Run jobs one by one from now on."""
        self._anomalies = _MOST_ANOMALIES

    def read_output(self) -> None:
        """Read what the first rank of each world has printed by now."""
        for world in self._worlds.values():
            world.links[0].output.read_rest()

    def restart(self, sizes: Collection[int] | None = None) -> None:
        """Replace every world, or those of these sizes; jobs in flight run again."""
        self._known.clear()
        for key, world in list(self._worlds.items()):
            if sizes is None or key.size in sizes:
                self._replace(world)

    def unfinished(self) -> list[Task]:
        """Every task that has no outcome."""
        waiting = [task for tasks in self._waiting.values() for task in tasks]
        flying = [task for world in self._worlds.values() for task in world.in_flight]
        return [*self._alone, *waiting, *flying]

    def salvage(self, excess: ResourceOveruse = NO_EXCESS) -> list[Task]:
        """Return the tasks that have no outcome after the loss of the template.

        ``excess``: what it was ended for, if anything.
        """
        found = [*self._alone, *(task for tasks in self._waiting.values() for task in tasks)]
        flying = [task for world in self._worlds.values() for task in world.in_flight]
        for task in flying:
            # By itself when the template was lost, so the loss is its outcome; else it runs again.
            if task.alone or (excess and len(flying) == 1):
                size, received = task.key.size, self._oom_watch.kernel_report()
                why = excess.text if excess else _TEMPLATE_KILLED
                fault = Fault("died", None, why, size, out_of_memory=received)
                task.deliver(
                    replace(
                        fault, processes=excess.processes, held=excess.held, threads=excess.threads
                    )
                )
            else:
                task.alone = True
                found.append(task)
        return found

    def close(self) -> None:
        """Let go of connections; the processes are the launcher's business."""
        for world in self._worlds.values():
            # Should the launcher have crashed, nothing else ends what the ranks have started.
            if (leader := world.links[0].pid) is not None:
                linux.kill_group(leader)
            world.close()
        self._worlds.clear()
        self._epoll.close()

    # -- the loop ---------------------------------------------------------------------------

    def _poll(self) -> None:
        now = self._clock.now()
        dues = [due for w in self._worlds.values() if (due := w.due(now)) is not None]
        if (
            min((len(w.in_flight) for w in self._worlds.values() if w.flying), default=0)
            > _ENOUGH_IN_FLIGHT
        ):
            # The ranks have enough to do: let answers gather rather than take a processor from
            # them for each.
            time.sleep(_GATHER_SECONDS)
        for fd, _ in self._epoll.poll(min(dues, default=_IDLE_WAIT)):
            if (reader := self._readers.get(fd)) is not None:
                reader(fd)

    def _advance(self, now: float) -> None:
        for world in list(self._worlds.values()):
            for task, outcome in world.advance(now):
                if (
                    isinstance(outcome, Fault)
                    and outcome.is_internal
                    and self._may_be_exclusive(task)
                ):
                    self._run_exclusively(task)
                    continue
                # It failed next to other ranks, and does not now: there is room for one world.
                self._one_world |= task.exclusive and not (
                    isinstance(outcome, Fault) and outcome.is_internal
                )
                if isinstance(outcome, Fault) and outcome.kind == "runaway":
                    self._shorten_limits()
                task.deliver(outcome)
            if world.broken:
                self._anomalies += bool(world.flying) and not world.failed_early
                for task in world.in_flight:
                    task.alone = True
                self._replace(world)
                if world.failure is not None:
                    self._start_failed(world.key, world.failure)

    def _shorten_limits(self) -> None:
        """Give jobs without a limit of their own ``cpu_seconds_after``, once one has run away."""
        hurried = min(self._given_options.cpu_seconds, self._given_options.cpu_seconds_after)
        self._apply(replace(self._given_options, cpu_seconds=hurried))

    def _apply(self, options: Options) -> None:
        self._options = options
        for world in self._worlds.values():
            world.options = options

    def _queue(self, task: Task) -> deque[Task]:
        return self._alone if task.alone else self._waiting[task.key]

    def _start_failed(self, key: WorldKey, failure: Fault) -> None:
        """Deliver a failure to start as the outcome of all jobs of the world.

        Where it may have failed for want of room, the first job runs again instead, while no other
        ranks exist, unless that was tried.
        """
        mine = [task for task in self._alone if task.key == key]
        mine += self._waiting.pop(key, ())
        self._alone = deque(task for task in self._alone if task.key != key)
        if not (failure.is_internal and all(map(self._may_be_exclusive, mine))):
            for task in mine:
                task.deliver(failure)
        elif mine:
            self._waiting[key] = deque(mine[1:])
            self._run_exclusively(mine[0])

    def _may_be_exclusive(self, task: Task) -> bool:
        return not task.exclusive and self._exclusive_runs < _MOST_EXCLUSIVE

    def _run_exclusively(self, task: Task) -> None:
        """Run a task again next, in fresh ranks, while no other ranks exist.

        Ranks that lack processes, memory or files fail before the code under test has done
        anything.
        """
        self._exclusive_runs += 1
        task.alone = task.exclusive = True
        self._alone.appendleft(task)

    # -- processes --------------------------------------------------------------------------

    def _start(self, key: WorldKey, now: float, *, alone: bool) -> World | None:
        self._born += 1
        try:
            links = self._template.start(self._born, key, self._options.memory, alone=alone)
        except NoRoom as error:
            text = f"not all can be started: {error}"
            self._start_failed(key, Fault("died", None, text, key.size, is_internal=True))
            return None
        world = self._worlds[key] = World(
            self._born, key, links, self._options, now, self._template.inspector, self._known
        )
        links[0].output.copy_to = self._printed
        for link in links:
            self._watch_link(world, link)
        return world

    def _watch_link(self, world: World, link: Link) -> None:
        def on_connection(fd: int) -> None:
            link.write()
            arrived = link.read()
            if arrived.complete:
                world.watchdog.progress(self._clock.now())
            elif arrived.size:  # a part of a large answer, or bytes that will never be one
                world.watchdog.stirred(held_up=arrived.size >= MUCH)
            if link.ended:
                self._unwatch(fd)
            elif not link.out:
                self._epoll.modify(fd, select.EPOLLIN)

        def on_output(fd: int) -> None:
            size = link.output.read()
            world.watchdog.stirred(held_up=size >= link.output.much)
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

    def _replace(self, world: World) -> None:
        """Discard a world; its jobs in flight are the next to run."""
        for task in reversed(world.in_flight):
            self._queue(task).appendleft(task)
        self._discard(world)

    def _discard(self, world: World) -> None:
        world.links[0].output.read_rest()
        for link in world.links:
            self._unwatch(link.sock.fileno())
            self._unwatch(link.output.fd)
        del self._worlds[world.key]
        world.close()
        self._template.end(world.number)

    def _on_process(self, read: Callable[[], Sequence[Ending] | None], fd: int) -> None:
        received = read()
        if received is None:
            self._unwatch(fd)
        try:
            for header in received or ():
                for world in self._worlds.values():
                    if world.number == header.get("world"):
                        rank, status, refused = answers.ending(header, world.key.size)
                        link = world.links[rank]
                        link.exit_status, link.refused = status, refused
        except wire.WireError as error:
            raise ConnectionResetError(f"the template process sent no message: {error}") from None
