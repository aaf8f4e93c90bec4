"""One world of ranks as the parent sees it: jobs in flight, what came back, what went wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from aggverify.world import flight_recorder, linux, memory, postmortem, resource_headroom
from aggverify.world.candidate_errors import Raised
from aggverify.world.exits import exit_text, printed
from aggverify.world.faults import Fault, Outcome
from aggverify.world.in_flight import Flight, Task, WorldKey, next_flight
from aggverify.world.link import Link
from aggverify.world.options import Options
from aggverify.world.polling import Polling
from aggverify.world.process_inspector import ProcessInspector
from aggverify.world.watchdog import Watchdog
from aggverify.world.wire import encode

# Enough jobs in flight that ranks never wait for the parent.
_WINDOW = 64
_WINDOW_BYTES = 1 << 22
# At most so many jobs share a dispatch, which pays once for sending, collectives and the answer.
_TOGETHER = 16
# Share of its processor time after which a job in flight with others is run again by itself:
# normal jobs take a hundredth of that time.
_RERUN_SHARE = 0.25
_GO = encode({"go": True})
# Seconds between looks at a rank that sleeps, until it is taken for blocked.
_SLEEP_CHECK_EVERY = 0.05
# In ``known``: some ranks have been silent for good, on lines that were not looked up.
_UNKNOWN_LINES: frozenset[tuple[str, int]] = frozenset()
# Factor on ``second_look`` for ranks that start, unless they import the code under test.
_START_FACTOR = 5
# A dead rank's connection ends a little before its exit status is known. Where the process is over
# the status will come; a process that lives on has only closed its connection, and has none.
_STATUS_DUE_WITHIN = 10.0
_NO_STATUS_AFTER = 0.5
# After a death the other ranks mostly die as well, or raise, having lost their connection: within
# this time, or they are not waited for.
_OTHERS_END_WITHIN = 0.1


@dataclass(slots=True)
class World:
    """Ranks of one size and backend.

    ``broken``: it must be replaced, and what is in flight run again. ``done``: dispatches that are
    finished. ``failure``: why it could not start.
    """

    number: int
    key: WorldKey
    links: Sequence[Link]
    options: Options
    born: float
    inspector: ProcessInspector
    """Shows the processes of its ranks."""
    known: set[frozenset[tuple[str, int]]] = field(default_factory=set)
    """Lines on which ranks of any world were blocked: on them again, they need no second look."""
    flying: deque[Flight] = field(default_factory=deque)
    ready: bool = False
    broken: bool = False
    failed_early: bool = False
    """Whether a rank has failed before the code under test was called."""
    done: int = 0
    watchdog: Watchdog = field(init=False)
    failure: Fault | None = None
    _end_seen: float | None = None
    _at_death: postmortem.Postmortem | None = None
    _oom_watch: memory.OomWatch = field(default_factory=memory.OomWatch)
    _pids_watch: resource_headroom.PidsWatch = field(default_factory=resource_headroom.PidsWatch)
    _signs: tuple[bytes, ...] = ()
    _asleep_since: float = 0.0
    _polling: Polling = field(init=False)

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.options.patience, self.key.backend.ticking, self.inspector)
        self._polling = Polling(self.inspector)
        self.watchdog.progress(self.born)

    @property
    def in_flight(self) -> list[Task]:
        """Tasks sent and not answered, in order."""
        return [task for flight in self.flying for task in flight.tasks]

    @property
    def loading(self) -> bool:
        """Whether its ranks are not ready for jobs: they start, import or prepare."""
        return not self.ready or any(link.preparing for link in self.links)

    @property
    def used(self) -> bool:
        """Whether it was given a job."""
        return bool(self.done or self.flying)

    def feed(self, waiting: deque[Task], now: float, *, one_by_one: bool) -> None:
        """Put jobs in flight as far as the window allows.

        Stops before a job that wants fresh ranks, unless these are.
        """
        window = 1 if one_by_one else _WINDOW
        count, size = len(self.in_flight), sum(flight.size for flight in self.flying)
        # Half a window at a time, since each round costs a system call per rank.
        if not self.ready or self.broken or count > window // 2:
            return
        if not self.flying:
            self.watchdog.progress(now)
        frames: list[bytes] = []
        while waiting and count < window:
            if waiting[0].job.fresh and self.used:
                break
            if self.flying and size + len(waiting[0].text) > _WINDOW_BYTES:
                break
            flight = next_flight(waiting, min(_TOGETHER, window))
            self.flying.append(flight)
            frames.append(flight.frame())
            count += len(flight.tasks)
            size += flight.size
            for link in self.links:
                link.asked += 1
                link.decoder.most = max(link.decoder.most, flight.answer)
        self._send(b"".join(frames))

    def _send(self, data: bytes) -> None:
        for link in self.links:
            link.out += data
            link.write()

    def advance(self, now: float) -> list[tuple[Task, Outcome]]:
        """Return the outcomes that are certain by now.

        Those are of dispatches with nothing odd about them, and of a job that was in flight by
        itself. About anything else the world is ``broken``, and nothing more is reported.
        """
        if not self.ready:
            self._start(now)
            return []
        settled: list[tuple[Task, Outcome]] = []
        garbled = [link.rank for link in self.links if link.garbage]
        if garbled and self._by_itself:
            return self._settle([self._postmortem().died(garbled[0], "")], False)
        self.broken |= bool(garbled)
        while self.flying and not self.broken and all(link.replies for link in self.links):
            settled += self._finished()
        if self.flying and not self.broken and (fault := self._trouble(now)) is not None:
            settled += self._settle([fault], False)
        return settled

    @property
    def _by_itself(self) -> bool:
        return len(self.flying) == 1 and len(self.flying[0].tasks) == 1

    def _finished(self) -> list[tuple[Task, Outcome]]:
        """Return the outcomes of the first dispatch, which every rank has answered."""
        frames = [link.replies[0] for link in self.links]
        outcome, usable = postmortem.finished(
            frames, self.links, self.done, self._pids_watch, self.inspector
        )
        count = len(self.flying[0].tasks)
        each = [outcome] if count == 1 else postmortem.split(outcome, count)
        if (usable and None not in each) or self._by_itself:
            return self._settle([part for part in each if part is not None], usable)
        self.broken = True
        return []

    def _settle(self, each: Sequence[Outcome], usable: bool) -> list[tuple[Task, Outcome]]:
        tasks = self.flying.popleft().tasks
        self.done += 1
        self.broken = not usable
        for link in self.links:
            if link.replies:
                link.replies.popleft()
        if usable and isinstance(each[0], Fault):
            self._send(_GO)
        return list(zip(tasks, each, strict=True))

    def _trouble(self, now: float) -> Fault | None:
        """Return why the job in flight cannot be finished; with several, only set ``broken``."""
        unanswered = [link for link in self.links if not link.replies]
        dead = [link for link in unanswered if link.ended]
        if not dead and self._failed_early(unanswered):
            return self._early_failure(now)
        if dead and self._by_itself:
            return self._death(dead, unanswered, now)
        stuck = None if dead else self._prints_too_much(unanswered)
        if stuck is None and not dead and now >= self.watchdog.next_look:
            stuck = self._stuck(unanswered, now)
        if stuck is not None and self._by_itself:
            return stuck()
        self.broken = bool(dead) or stuck is not None
        return None

    def _failed_early(self, unanswered: Sequence[Link]) -> bool:
        """Whether a rank raised before the code under test was called, and the others wait for it.

        Those are in collectives, where waiting may take long to be distinguished from work.
        """
        failed = any(
            "error" in link.replies[0][0] and flight_recorder.read(link.recorder).own
            for link in self.links
            if link.replies
        )
        return failed and all(flight_recorder.read(link.recorder).inside for link in unanswered)

    def _early_failure(self, now: float) -> Fault | None:
        """Report the rank that raised, after a moment in which another one may turn out dead."""
        if self._end_seen is None:
            self._end_seen = now
        if now - self._end_seen < _OTHERS_END_WITHIN:
            self.watchdog.next_look = now + 0.002
            return None
        self.broken = self.failed_early = True
        return self._postmortem().raised() if self._by_itself else None

    def _death(self, dead: Sequence[Link], unanswered: Sequence[Link], now: float) -> Fault | None:
        """Name the rank that died; wait a moment for its exit status, and for others to follow."""
        if self._end_seen is None or self._at_death is None:
            self._end_seen = now
            # Gathered now, before the others notice the death and leave what they were in.
            self._at_death = self._postmortem()
        known = [link for link in dead if link.exit_status is not None]
        patience = self._patience_with_the_end(unanswered, dead)
        if len(known) < len(unanswered) and now - self._end_seen < patience:
            self.watchdog.next_look = now + 0.002
            return None
        # The first to end is the cause; of several that ended in the same way the lowest is named.
        first = min(known or dead, key=lambda link: link.ended_at)
        same_status = [link.rank for link in dead if link.exit_status == first.exit_status]
        return (self._at_death or self._postmortem()).died(
            min(same_status), self._oom_watch.kernel_report()
        )

    def _patience_with_the_end(self, unanswered: Sequence[Link], dead: Sequence[Link]) -> float:
        """How long to wait for exit statuses, and for other ranks to end as well."""
        seen = self.inspector.glance(link.pid for link in unanswered if link.pid is not None)
        states = {thread.number: thread.state for thread in seen.threads}
        over = [link for link in dead if link.pid and states.get(link.pid, b"Z") in b"ZX"]
        if any(link.exit_status is None for link in over):
            return _STATUS_DUE_WITHIN
        known = any(link.exit_status is not None for link in dead)
        return _OTHERS_END_WITHIN if known and not seen.running else _NO_STATUS_AFTER

    def _prints_too_much(self, unanswered: Sequence[Link]) -> Callable[[], Fault] | None:
        """Return what makes the fault of a rank that prints without end, None if none does."""
        most = self.options.printed
        loud = [link.rank for link in unanswered if link.output.size > most]
        return partial(self._postmortem().prints, loud[0], most) if loud else None

    def _stuck(self, unanswered: Sequence[Link], now: float) -> Callable[[], Fault] | None:
        """Return what makes the fault of ranks that are blocked or run away, None if none is."""
        silence = self.options.silence
        if _UNKNOWN_LINES in self.known:
            silence = min(silence, self.options.silence_after)
        if now - self.watchdog.since > silence:
            return self._past_silence_limit
        if not self.key.backend.sleeps_in_collectives:
            self.watchdog.next_look = self.watchdog.since + silence
            return None
        pids = {link.pid: link.rank for link in unanswered if link.pid is not None}
        if self.watchdog.blocked(pids, now):
            found = self._postmortem()
            return found.blocked if self._for_good(found, now) else None
        limit = self._cpu_limit(unanswered)
        used = self.watchdog.cpu_since_progress()
        if any(seconds > limit for seconds in used.values()):
            # Of several that run away at once name the lowest, not the one that was seen first.
            away = [pids[pid] for pid, seconds in used.items() if seconds > limit / 2]
            return partial(self._postmortem().runaway, min(away), limit)
        return None

    def _past_silence_limit(self) -> Fault:
        self.known.add(_UNKNOWN_LINES)
        return self._postmortem().blocked()

    def _for_good(self, found: postmortem.Postmortem, now: float) -> bool:
        """Whether ranks that do nothing are blocked.

        One asleep outside any collective may wake by itself: it must have slept for
        ``second_look`` seconds, unless ranks were blocked on the same lines before.
        """
        if not found.asleep:
            return True
        if found.signs != self._signs:
            self._signs, self._asleep_since = found.signs, now
        left = self._asleep_since + self.options.second_look - now
        if left > 0 and not (self.known and found.sleeping_at() in self.known):
            self.watchdog.next_look = now + min(left, _SLEEP_CHECK_EVERY)
            return False
        if where := found.sleeping_at():
            self.known.add(where)
        return True

    def _cpu_limit(self, unanswered: Sequence[Link]) -> float:
        # All ranks prepare at once, and what they used is forgotten when one is done.
        if any(link.preparing for link in unanswered):
            return self.options.import_seconds
        usual = self.options.cpu_seconds
        limit = max(task.job.cpu_seconds or usual for task in self.flying[0].tasks)
        return limit if self._by_itself else limit * _RERUN_SHARE

    def _postmortem(self) -> postmortem.Postmortem:
        return postmortem.Postmortem(self.links, self.done, self._pids_watch, self.inspector)

    def _start(self, now: float) -> None:
        for link in self.links:
            if link.pid is None:
                self._started(link)
        late = [link.rank for link in self.links if link.pid is None]
        if not late:
            self.ready = True
            self.watchdog.progress(now)
        elif now - self.born <= self.options.silence:
            if now - self.born > self.options.second_look:
                self.inspector.wake()  # code under test can stop the template process
            if now >= self.watchdog.next_look and self._starts_asleep(late, now):
                self._not_started(late[0], f"rank {late[0]} sleeps or waits while it starts")
        else:
            self._not_started(
                late[0], f"rank {late[0]} did not start in {self.options.silence:g} s"
            )

    def _not_started(self, late: int, text: str) -> None:
        page = self.links[late].recorder
        ours = flight_recorder.read(page).own or flight_recorder.untouched(page)
        self._fail(Fault("blocked", late, text, len(self.links), is_internal=ours))

    def _starts_asleep(self, late: Sequence[int], now: float) -> bool:
        """Whether the ranks that are not ready are blocked.

        A backend that is refused a thread may wait for it for ever.
        """
        seen = {rank: flight_recorder.read(self.links[rank].recorder) for rank in late}
        pids = [self.inspector.child(rank, page.pid) for rank, page in seen.items()]
        self.watchdog.next_look = now + _SLEEP_CHECK_EVERY
        if linux.NO_PROCESS in pids:
            self._asleep_since = now
            return False
        theirs = not all(page.own for page in seen.values())
        patience = (
            self.options.import_patience if theirs else _START_FACTOR * self.options.second_look
        )
        if self._polling.seconds(pids, now) > patience:
            return True
        if self.inspector.glance(pids).running:
            self._asleep_since = now
            return False
        asleep = now - max(self._asleep_since, self.born)
        return asleep > patience and self.watchdog.blocked(pids, now)

    def _started(self, link: Link) -> None:
        rank, size, ours = link.rank, len(self.links), flight_recorder.read(link.recorder).own
        if link.replies:
            header, _ = link.replies.popleft()
            if "error" not in header:
                # The rank states its pid, which is sent signals: it must be a process of ours.
                pid = self.inspector.child(rank, header["ready"])
                if pid != linux.NO_PROCESS:
                    link.pid = pid
                else:
                    link.garbage = "sent what is no answer: ready is none of its processes"
                    self._started(link)
                return
            error = Raised.from_json(header["error"])
            text = f"rank {rank}: {error.text} (while rank {rank} started)"
            self._fail(Fault("exception", rank, text, size, {rank: error}, is_internal=ours))
        elif link.output.size > self.options.printed:
            text = f"rank {rank} {printed(self.options.printed)} (while it started)"
            self._fail(Fault("runaway", rank, text, size, is_internal=ours))
        elif link.garbage:
            text = f"rank {rank} {link.garbage} (while it started)"
            self._fail(Fault("died", rank, text, size, is_internal=ours))
        elif link.refused:
            text = f"rank {rank} cannot be started: {link.refused}"
            self._fail(Fault("died", rank, text, size, is_internal=True))
        elif link.exit_status is not None:
            text = f"rank {rank} {exit_text(link.exit_status)} while it started"
            fault = Fault("died", rank, text, size, exit_status=link.exit_status, is_internal=ours)
            self._fail(replace(fault, out_of_memory=self._oom_watch.kernel_report()))

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
