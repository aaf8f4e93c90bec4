"""One world of ranks as the parent sees it: jobs in flight, what came back, what went wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aggverify.world import verdict
from aggverify.world.faults import Fault, Job, Outcome
from aggverify.world.link import Link
from aggverify.world.options import Options
from aggverify.world.watchdog import Watchdog
from aggverify.world.wire import encode

if TYPE_CHECKING:
    from aggverify.world.template import Pending

# Enough in flight that ranks never wait for the parent.
_WINDOW = 32
_WINDOW_BYTES = 1 << 22
_GO = encode({"go": True})
# A dead rank's connection ends a little before its exit status is known.
_STATUS_PATIENCE = 0.5


@dataclass(slots=True)
class Task:
    """A job on its way: where its outcome goes, and the frame sent to the ranks."""

    pending: Pending
    index: int
    job: Job
    frame: bytes


@dataclass(slots=True)
class World:
    """Ranks of one size. ``careful``: jobs still to be run one at a time."""

    number: int
    links: Sequence[Link]
    options: Options
    born: float
    careful: int = 0
    flying: deque[Task] = field(default_factory=deque)
    ready: bool = False
    broken: bool = False
    done: int = 0
    watchdog: Watchdog = field(init=False)
    _end_seen: float | None = None

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.options.patience)
        self.watchdog.progress(self.born)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.links)

    def feed(self, waiting: deque[Task], now: float) -> None:
        """Put jobs in flight as far as the window allows."""
        if not self.ready or self.broken:
            return
        if not self.flying:
            self.watchdog.progress(now)
        in_flight = sum(len(task.frame) for task in self.flying)
        while waiting and len(self.flying) < (1 if self.careful else _WINDOW):
            if self.flying and in_flight + len(waiting[0].frame) > _WINDOW_BYTES:
                return
            task = waiting.popleft()
            in_flight += len(task.frame)
            self.flying.append(task)
            for link in self.links:
                link.out += task.frame
                link.write()

    def advance(self, now: float) -> list[tuple[Task, Outcome]]:
        """Outcomes that can be told now; sets ``broken`` when the world must be replaced."""
        if not self.ready:
            self._start(now)
            return []
        told: list[tuple[Task, Outcome]] = []
        while self.flying and not self.broken and all(link.replies for link in self.links):
            outcome, usable = verdict.finished([l.replies[0] for l in self.links], self.links)
            if isinstance(outcome, Fault) and any(link.ended for link in self.links):
                if self._collateral():
                    break
            told.append(self._settle(outcome, usable))
        if self.flying and not self.broken and (fault := self._trouble(now)) is not None:
            told.append(self._settle(fault, False))
        return told

    def _settle(self, outcome: Outcome, usable: bool) -> tuple[Task, Outcome]:
        task = self.flying.popleft()
        self.done += 1
        self.careful = max(0, self.careful - 1)
        self.broken = self.broken or not usable
        for link in self.links:
            if link.replies:
                link.replies.popleft()
            if usable and isinstance(outcome, Fault):
                link.out += _GO
                link.write()
        return task, outcome

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
        self.careful = len(self.flying) + 1
        self.broken = True
        return True

    def _trouble(self, now: float) -> Fault | None:
        """Look for a reason why the first job in flight will never be finished."""
        unanswered = [link for link in self.links if not link.replies]
        dead = [link for link in unanswered if link.ended]
        if dead:
            if self._end_seen is None:
                self._end_seen = now
            known = [link for link in dead if link.exit_status is not None]
            if known or now - self._end_seen > _STATUS_PATIENCE:
                return self._scene().died((known or dead)[0].rank)
            self.watchdog.next_look = now + 0.002
            return None
        if now < self.watchdog.next_look:
            return None
        return self._look(unanswered, now)

    def _look(self, unanswered: Sequence[Link], now: float) -> Fault | None:
        pids = {link.pid: link.rank for link in unanswered if link.pid is not None}
        if self.watchdog.blocked(pids, now):
            if any(link.ended for link in self.links) and self._collateral():
                return None
            return self._scene().blocked()
        limit = self.flying[0].job.cpu_seconds or self.options.cpu_seconds
        for pid, used in self.watchdog.cpu_since_progress().items():
            if used > limit:
                return self._scene().runaway(pids[pid], limit)
        if now - self.watchdog.since > self.options.silence:
            return self._scene().silent(self.options.silence)
        return None

    def _scene(self) -> verdict.Scene:
        return verdict.Scene(self.links, self.done)

    def _start(self, now: float) -> None:
        for link in self.links:
            if link.pid is None and link.replies:
                header, _ = link.replies.popleft()
                if "error" in header:
                    self.broken = True
                    self.failure = Fault(
                        "exception", link.rank,
                        f"while rank {link.rank} started: {header['error']['type']}: "
                        f"{header['error']['message']}",
                        header["error"]["traceback"],
                    )  # fmt: skip
                    return
                link.pid = header["ready"]
            if link.pid is None and link.exit_status is not None:
                self.broken = True
                how = verdict.exit_text(link.exit_status)
                self.failure = Fault(
                    "died", link.rank, f"rank {link.rank} {how} while it started",
                    exit_status=link.exit_status,
                )  # fmt: skip
                return
        self.ready = all(link.pid is not None for link in self.links)
        if self.ready:
            self.watchdog.progress(now)
        elif now - self.born > self.options.silence:
            self.broken = True
            late = next(link.rank for link in self.links if link.pid is None)
            self.failure = Fault(
                "blocked", late, f"rank {late} did not start in {self.options.silence:g} s"
            )

    failure: Fault | None = None

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
