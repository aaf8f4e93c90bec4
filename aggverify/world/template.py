"""A handler's template process and its worlds, driven from the parent."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aggverify.errors import InputError
from aggverify.world import wire
from aggverify.world.backends import Backend
from aggverify.world.dispatcher import Dispatcher
from aggverify.world.fallback_import import FallbackImport
from aggverify.world.faults import NO_EXCESS, Fault, Job, Outcome, PoolError, TemplateFailure
from aggverify.world.in_flight import Task, WorldKey
from aggverify.world.launching import Launcher, TemplateHandle
from aggverify.world.link import Printed
from aggverify.world.options import MAX_RANKS, Options
from aggverify.world.replay_log import named

# Losses of the template process in one wait after which no other one is made: a machine without
# room, or code that kills it, would go on for ever.
_MOST_LOSSES = 5


class Pending:
    """Jobs that were submitted and may still be running."""

    def __init__(self, template: Template, count: int) -> None:
        self._template = template
        self._outcomes: list[Outcome | None] = [None] * count
        self._left = count
        self._half = self._left_of_half = count - count // 2
        self._stumbles = False
        self._given_up = False

    @property
    def done(self) -> bool:
        """Whether every outcome is there."""
        return self._left == 0

    def wait(self) -> list[Outcome]:
        """Outcomes in the order of the jobs; raises PoolError when the pool breaks down."""
        if not self.done:
            if self._given_up:
                raise PoolError("these jobs were given up when the pool was interrupted or closed")
            self._template.drive(lambda: self.done)
        return [outcome for outcome in self._outcomes if outcome is not None]

    def stumbles(self) -> bool:
        """Wait for the first half of the outcomes, or a fault among them; whether there is one.

        Outcomes of the second half that are there already do not count: what is run
        must not depend on how soon ranks answer.
        """
        if not self._given_up:
            self._template.drive(lambda: self._stumbles or not self._left_of_half)
        return self._stumbles

    def deliver(self, index: int, outcome: Outcome) -> None:
        """Take one outcome."""
        self._outcomes[index] = outcome
        self._left -= 1
        if index < self._half:
            self._left_of_half -= 1
            self._stumbles |= isinstance(outcome, Fault)

    def give_up(self) -> None:
        """No further outcome will come."""
        self._given_up = True


class Template:
    """Worlds of ranks that all hold the same handler; ``description`` is what it described."""

    def __init__(
        self,
        handle: TemplateHandle,
        request: dict[str, Any],
        options: Options,
        launcher: Launcher,
    ) -> None:
        self.description: dict[str, Any] = handle.description
        self.loading = 0.0
        """Seconds spent waiting for ranks that start, import or prepare, and for nothing else."""
        self._request = request
        self._options = options
        self._launcher = launcher
        self._handle: TemplateHandle | None = handle
        self._printed = Printed()
        self._dispatcher: Dispatcher | None = Dispatcher(handle, options, self._printed)
        self._pendings: list[Pending] = []
        self._closed = False
        self._siblings: list[Template] = []
        self._begun: dict[str, TemplateHandle] = {}
        """By request and options, siblings that are not asked for yet."""
        self._fallback, self._ranks_import = FallbackImport(), False
        self._digest = ""

    @property
    def most(self) -> int:
        """Ranks that a world may have."""
        backend = self._options.backend
        if not backend.is_far:
            return self._launcher.most
        devices = self._launcher.require(backend)
        fitting = (n for n in range(self._launcher.most, 0, -1) if backend.fits(n, devices))
        return next(fitting, 0)

    @property
    def backend(self) -> str:
        """The name of what joins its ranks."""
        return self._options.backend.name

    @property
    def cpu_seconds(self) -> float:
        """Processor time that a job has where nothing else is asked for it."""
        return self._options.cpu_seconds

    @property
    def why_no_more(self) -> str:
        """What keeps worlds from being larger."""
        if self._options.backend.shares:
            return f"{self.most} rank{'s were' if self.most > 1 else ' was'} launched"
        there = f"there {'are' if self.most > 1 else 'is'} {self.most}"
        return f"each rank has its own GPU, and {there}"

    @property
    def carried(self) -> str:
        """What carries collectives, apart from the backend; "" for this machine's usual."""
        return self._launcher.carried

    @property
    def contention(self) -> float:
        """How many times longer its ranks take than on an idle machine."""
        return 1.0 if self._dispatcher is None else self._dispatcher.contention

    @property
    def printed(self) -> Printed:
        """What the first rank of each world has printed."""
        if self._dispatcher is not None:
            self._dispatcher.read_output()
        return self._printed

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def submit(self, jobs: Sequence[Job]) -> Pending:
        """Send jobs off, each to the world of its size; worlds run at the same time.

        The ranks work while the caller does something else. Raises InputError for a payload that
        is not JSON-able or a world size out of range, PoolError for a backend that cannot be had.
        """
        dispatcher = self._ready()
        for backend in {job.backend for job in jobs if job.backend is not None}:
            self._launcher.require(backend)
        pending, usual = Pending(self, len(jobs)), self._options.backend
        tasks = [_task(pending, i, job, usual) for i, job in enumerate(jobs)]
        dispatcher.add([self._with_fallback(task) for task in tasks if not self._is_known(task)])
        self._pendings.append(pending)
        try:
            dispatcher.feed()
        except OSError:
            pass  # the template process is gone: found and mended by waiting
        except BaseException:
            self._give_up()
            raise
        return pending

    def sibling(
        self, setup: Mapping[str, Any], more: Mapping[str, Any], *, launched: bool = False
    ) -> Template | TemplateFailure:
        """Open another one of the same handler with more in its setup, and under other options.

        It ends with this one. ``launched``: its ranks are started, not forked.
        """
        options = replace(self._options, **more)
        request = self._with(setup)
        if launched:
            request |= {"launched": True, "late": True}
        begun = self._begun.pop(repr((request, options)), None)
        handle = self._launcher.open(request, options, begun)
        if isinstance(handle, TemplateFailure):
            return handle
        self._siblings.append(Template(handle, request, options, self._launcher))
        return self._siblings[-1]

    def begin_sibling(self, setup: Mapping[str, Any]) -> None:
        """Have one constructed while this one works; ``sibling`` then waits for the rest of it."""
        request = self._with(setup)
        if (key := repr((request, self._options))) not in self._begun:
            handle = self._launcher.begin(request, self._options)
            if handle is not None:
                self._begun[key] = handle

    def _with(self, setup: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._request, "setup": {**self._request["setup"], **setup}}

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs and wait; outcomes in the order of the jobs, faults are values."""
        return self.submit(jobs).wait()

    def restart_worlds(self, sizes: Collection[int] | None = None) -> None:
        """Replace every world, or those of these sizes: nothing of earlier jobs remains there."""
        dispatcher = self._ready()
        try:
            dispatcher.restart(sizes)
        except OSError:
            self._lost(dispatcher)

    def calm(self) -> None:
        """Hold nothing that has run away or been odd so far against the jobs that come."""
        if self._dispatcher is not None:
            self._dispatcher.calm()

    def close(self) -> None:
        """End every rank and the template process; does nothing the second time."""
        for template in self._siblings:
            template.close()
        for handle in self._begun.values():
            self._launcher.kill(handle)
            handle.close()
        self._begun.clear()
        self._closed = True
        self._give_up()

    def drive(self, enough: Callable[[], bool]) -> None:
        """Serve the worlds until there is enough of what is waited for."""
        losses = 0
        try:
            while not enough():
                self._options.turn()
                began = time.monotonic()
                dispatcher = self._ready()
                try:
                    # A turn in which loading began or ended counts in full: it is mostly loading.
                    loading = dispatcher.loading
                    dispatcher.step(enough)
                    loading |= dispatcher.loading
                    self.loading += loading * (time.monotonic() - began)
                    self._settle(dispatcher)
                except OSError as error:
                    losses += 1
                    if losses > _MOST_LOSSES:
                        raise PoolError(f"the template process died {losses} times") from error
                    self._lost(dispatcher)
        except BaseException:
            # Interrupted anywhere: the state of connections is unknown, so none is kept.
            self._give_up()
            raise
        self._pendings = [p for p in self._pendings if not p.done]

    def _ready(self) -> Dispatcher:
        if self._closed:
            raise PoolError("the template is closed; make another with pool.template(...)")
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(self._open_again(), self._options, self._printed)
        return self._dispatcher

    def _open_again(self) -> TemplateHandle:
        self._ranks_import = self._fallback.imports
        request = {**self._request, "late": True} if self._ranks_import else self._request
        handle = self._launcher.open(request, self._options)
        if isinstance(handle, TemplateFailure):
            raise PoolError(f"the handler cannot be constructed again: {handle.message}")
        self._handle = handle
        return handle

    def _lost(self, old: Dispatcher) -> None:
        """Go on in a new template process: the old one is gone, its ranks with it."""
        handle = self._handle
        excess = NO_EXCESS if handle is None else self._launcher.excess(handle)
        waiting = old.salvage(excess)
        self._release()
        new = self._ready()
        if excess:  # several jobs together may have caused it, and would again
            new.careful()
        new.add(waiting)

    def _is_known(self, task: Task) -> bool:
        """Whether the replay log has its replies, which are delivered then."""
        replay_log = self._launcher.replay_log
        replies = None if replay_log is None else replay_log.replies(self._name(task))
        if replies is None:
            return False
        task.deliver(replies)
        return True

    def _with_fallback(self, task: Task) -> Task:
        """Return the task, which now delivers only an outcome that ``FallbackImport`` takes."""
        inner = task.deliver

        def deliver(outcome: Outcome) -> None:
            lacking = self._handle is not None and self._handle.lacks_threads
            if self._fallback.takes(task, outcome, lacking=lacking):
                if self._launcher.replay_log is not None:
                    self._launcher.replay_log.add(self._name(task), outcome)
                inner(outcome)

        task.deliver = deliver
        return task

    def _name(self, task: Task) -> str:
        """Return what a replay log knows a job by."""
        if not self._digest:
            about = {**self._request, "paths": [], "description": self.description}
            self._digest = named(wire.text(about))
        joined_by = task.key.backend.name
        return named(self._digest, task.key.size, joined_by, task.job.fresh, task.text)

    def _settle(self, dispatcher: Dispatcher) -> None:
        """Run what ``FallbackImport`` wants next, in a new template process where that differs."""
        if self._fallback.settled:
            return
        if self._fallback.imports is self._ranks_import:
            dispatcher.add(self._fallback.next([]))
            return
        waiting = dispatcher.unfinished()
        self._release()
        self._ready().add(self._fallback.next(waiting))

    def _give_up(self) -> None:
        for pending in self._pendings:
            pending.give_up()
        self._pendings.clear()
        self._release()

    def _release(self) -> None:
        dispatcher, self._dispatcher = self._dispatcher, None
        handle, self._handle = self._handle, None
        if dispatcher is not None:
            dispatcher.close()
        if handle is not None:
            self._launcher.kill(handle)
            handle.close()


def _task(pending: Pending, index: int, job: Job, backend: Backend) -> Task:
    size = job.world
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_RANKS:
        raise InputError(f"job {index}: world must be 1 to {MAX_RANKS} ranks, not {size!r}")
    if job.cpu_seconds is not None and not job.cpu_seconds > 0:
        raise InputError(f"job {index}: cpu_seconds must be positive, not {job.cpu_seconds!r}")
    try:
        text = wire.text(dict(job.payload))
        wire.check_size(len(text))
    except (TypeError, ValueError) as error:
        raise InputError(f"job {index}: payload is not JSON-able: {error}") from error
    key = WorldKey(size, job.backend or backend)
    return Task(lambda outcome: pending.deliver(index, outcome), job, key, text)
