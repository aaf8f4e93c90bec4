"""One world of ranks as the parent sees it: jobs in flight, what came back, what went wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aggverify.world import verdict
from aggverify.world.exits import exit_text
from aggverify.world.faults import Fault, Job, Outcome
from aggverify.world.link import Link
from aggverify.world.options import Options
from aggverify.world.watchdog import Watchdog
from aggverify.world.wire import encode, frame

# Enough jobs in flight that ranks never wait for the parent.
_WINDOW = 64
_WINDOW_BYTES = 1 << 22
# Jobs that share a dispatch: what it costs to hand over, to reduce and to answer is paid once.
_TOGETHER = 16
_TOGETHER_BYTES = 1 << 18
# Their share of a single job's processor time: normal jobs take a hundredth of it.
_TOGETHER_CPU = 0.25
_GO = encode({"go": True})
# A dead rank's connection ends a little before its exit status is known.
_STATUS_PATIENCE = 0.5
# After a death the other ranks mostly die as well, or raise, having lost their connection. Those
# that do neither are not waited for.
_FOLLOWERS = 0.1


@dataclass(slots=True)
class Task:
    """A job on its way: where its outcome goes, and its payload as JSON text.

    ``alone``: it shares its dispatch with no other. ``suspect``: it was running when the template
    process was lost.
    """

    deliver: Callable[[Outcome], None]
    job: Job
    text: bytes
    alone: bool = True
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """One dispatch: a task, or several together."""

    tasks: tuple[Task, ...]
    size: int

    def frame(self) -> bytes:
        """What is sent to every rank."""
        if len(self.tasks) == 1:
            return frame(b'{"job":' + self.tasks[0].text + b"}")
        return frame(b'{"jobs":[' + b",".join(task.text for task in self.tasks) + b"]}")

    def cpu_seconds(self, default: float) -> float:
        """A rank's processor time before it counts as running away."""
        most = max(task.job.cpu_seconds or default for task in self.tasks)
        return most if len(self.tasks) == 1 else most * _TOGETHER_CPU


@dataclass(slots=True)
class World:
    """Ranks of one size. ``careful``: jobs still to be run one at a time."""

    number: int
    links: Sequence[Link]
    options: Options
    born: float
    careful: int = 0
    flying: deque[Flight] = field(default_factory=deque)
    ready: bool = False
    broken: bool = False
    done: int = 0
    watchdog: Watchdog = field(init=False)
    failure: Fault | None = None
    _end_seen: float | None = None
    _death_scene: verdict.Scene | None = None

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.options.patience, self.options.backend.ticking)
        self.watchdog.progress(self.born)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.links)

    @property
    def in_flight(self) -> list[Task]:
        """Tasks sent and not answered, in order."""
        return [task for flight in self.flying for task in flight.tasks]

    @property
    def used(self) -> bool:
        """Whether it was given a job."""
        return bool(self.done or self.flying)

    def feed(self, waiting: deque[Task], now: float, *, single: bool, together: bool) -> None:
        """Put jobs in flight as far as the window allows, one at a time if ``single``.

        Stops before a job that wants fresh ranks, unless these are.
        """
        single = single or bool(self.careful)
        window = 1 if single else _WINDOW
        count, size = len(self.in_flight), sum(flight.size for flight in self.flying)
        # Half a window at a time, since each round costs a system call per rank.
        if not self.ready or self.broken or count > window // 2:
            return
        if not self.flying:
            self.watchdog.progress(now)
        frames = []
        while waiting and count < window:
            if waiting[0].job.fresh and self.used:
                break
            if self.flying and size + len(waiting[0].text) > _WINDOW_BYTES:
                break
            flight = _flight(waiting, _TOGETHER if together and not single else 1)
            self.flying.append(flight)
            frames.append(flight.frame())
            count += len(flight.tasks)
            size += flight.size
        self._send(b"".join(frames))

    def _send(self, data: bytes) -> None:
        for link in self.links:
            link.out += data
            link.write()

    def advance(self, now: float) -> list[tuple[Task, Outcome | None]]:
        """Outcomes that can be told now, None for a task that shall run again by itself.

        Sets ``broken`` when the world must be replaced.
        """
        if not self.ready:
            self._start(now)
            return []
        told: list[tuple[Task, Outcome | None]] = []
        while self.flying and not self.broken and all(link.replies for link in self.links):
            outcome, usable = verdict.finished([link.replies[0] for link in self.links], self.links)
            if isinstance(outcome, Fault) and self._collateral():
                break
            told += self._settle(outcome, usable)
        if self.flying and not self.broken and (fault := self._trouble(now)) is not None:
            told += self._settle(fault, False)
        return told

    def _settle(self, outcome: Outcome, usable: bool) -> list[tuple[Task, Outcome | None]]:
        tasks = self.flying.popleft().tasks
        self.done += 1
        self.careful = max(0, self.careful - 1)
        self.broken = self.broken or not usable
        for link in self.links:
            if link.replies:
                link.replies.popleft()
        if usable and isinstance(outcome, Fault):
            self._send(_GO)
        outcomes = [outcome] if len(tasks) == 1 else verdict.apart(outcome, len(tasks))
        return list(zip(tasks, outcomes, strict=True))

    def _collateral(self) -> bool:
        """Whether this job failed only because a rank died in a later one.

        Ranks do not wait for each other between jobs, so one may die in the next job while others
        are still in this one. Then nothing is certain: all in flight runs again, one at a time.
        """
        innocent = [
            link for link in self.links
            if link.ended and link.replies and "error" not in link.replies[0][0]
        ]  # fmt: skip
        if not innocent or self.careful:
            return False
        self.careful = len(self.in_flight) + 1
        self.broken = True
        return True

    def _trouble(self, now: float) -> Fault | None:
        """Look for a reason why the first job in flight will never be finished."""
        unanswered = [link for link in self.links if not link.replies]
        dead = [link for link in unanswered if link.ended]
        if dead:
            return self._deaths(dead, len(unanswered), now)
        if now < self.watchdog.next_look:
            return None
        return self._look(unanswered, now)

    def _deaths(self, dead: Sequence[Link], unanswered: int, now: float) -> Fault | None:
        """Name the rank that died; wait a moment for its exit status, and for others to follow."""
        if self._end_seen is None:
            self._end_seen = now
            # Seen now: what the others were in, before they notice the death.
            self._death_scene = self._scene()
        known = [link for link in dead if link.exit_status is not None]
        patience = _FOLLOWERS if known else _STATUS_PATIENCE
        if len(known) < unanswered and now - self._end_seen < patience:
            self.watchdog.next_look = now + 0.002
            return None
        # The first to end is the cause; of several that ended alike the lowest is told.
        first = min(known or dead, key=lambda link: link.ended_at)
        alike = [link.rank for link in dead if link.exit_status == first.exit_status]
        scene = self._death_scene or self._scene()
        return scene.died(min(alike))

    def _look(self, unanswered: Sequence[Link], now: float) -> Fault | None:
        if now - self.watchdog.since > self.options.silence:
            return self._scene().blocked()
        if not self.options.backend.sleeps_in_collectives:
            self.watchdog.next_look = self.watchdog.since + self.options.silence
            return None
        pids = {link.pid: link.rank for link in unanswered if link.pid is not None}
        if self.watchdog.blocked(pids, now):
            if self._collateral():
                return None
            return self._scene().blocked()
        limit = self._cpu_limit(unanswered)
        used = self.watchdog.cpu_since_progress()
        if any(seconds > limit for seconds in used.values()):
            # Of several that run away side by side the lowest, whoever came first past the post.
            away = [pids[pid] for pid, seconds in used.items() if seconds > limit / 2]
            return self._scene().runaway(min(away), limit)
        return None

    def _cpu_limit(self, unanswered: Sequence[Link]) -> float:
        # All ranks prepare at once, and what they used is forgotten when one is done.
        if any(link.preparing for link in unanswered):
            return self.options.import_seconds
        return self.flying[0].cpu_seconds(self.options.cpu_seconds)

    def _scene(self) -> verdict.Scene:
        return verdict.Scene(self.links, self.done)

    def _start(self, now: float) -> None:
        for link in self.links:
            if link.pid is None:
                self._started(link)
        late = [link.rank for link in self.links if link.pid is None]
        if not late:
            self.ready = True
            self.watchdog.progress(now)
        elif now - self.born > self.options.silence:
            text = f"rank {late[0]} did not start in {self.options.silence:g} s"
            self._fail(Fault("blocked", late[0], text))

    def _started(self, link: Link) -> None:
        if link.replies:
            header, _ = link.replies.popleft()
            if "error" not in header:
                link.pid = header["ready"]
                return
            error = header["error"]
            text = f"{error['type']}: {error['message']} (while rank {link.rank} started)"
            self._fail(Fault("exception", link.rank, text, error["traceback"]))
        elif link.exit_status is not None:
            text = f"rank {link.rank} {exit_text(link.exit_status)} while it started"
            self._fail(Fault("died", link.rank, text, exit_status=link.exit_status))

    def _fail(self, failure: Fault) -> None:
        self.broken = True
        # The first one is the cause: a rank that dies makes the others fail.
        self.failure = self.failure or failure

    def due(self, now: float) -> float | None:
        """Seconds until this world wants to be looked at, None when it waits for nothing."""
        if not self.ready:
            return 0.05
        if not self.flying:
            return None
        return max(0.0, self.watchdog.next_look - now)

    def close(self) -> None:
        """Let go of connections and files."""
        for link in self.links:
            link.close()


def _flight(waiting: deque[Task], most: int) -> Flight:
    """The next task, with those behind it that may share its dispatch."""
    tasks = [waiting.popleft()]
    size = len(tasks[0].text)
    while waiting and len(tasks) < most and not (tasks[0].alone or waiting[0].alone):
        size += len(waiting[0].text)
        if size > _TOGETHER_BYTES:
            size -= len(waiting[0].text)
            break
        tasks.append(waiting.popleft())
    return Flight(tuple(tasks), size)
