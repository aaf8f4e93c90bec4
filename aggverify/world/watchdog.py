"""Distinguish a world that is blocked from one that is slow, by looking at its threads in /proc.

A world is blocked when every thread of every unfinished rank, and of the processes it started,
sleeps and has not been switched to between looks: three looks in a row 5 ms apart, more of them
on a machine with more to do than it has processors. A thread that waits for a processor is
runnable, not asleep, so load by itself does not look like being blocked; but what the kernel does
between two ranks may have to wait as well, and nothing shows that. All this holds for a backend
whose ranks sleep while they wait in a collective.

Ranks that poll (sleep a moment, look, sleep) do get switched to. They count as blocked when over a
tenth of a second all their threads together were runnable for less than a fifth of the time.

A backend's own threads may wake by themselves, however long nothing happens. On a machine with much
to do they wait for a processor each time, so that a look without any runnable thread is rare. Where
no other thread has been switched to for a while (longer on a busy machine), and each of these many
times, what they used of a processor shows it: next to nothing, if nothing has come. So it is with
threads that are seen, again and again, to sleep until a time: they poll, and find nothing.

Reading every thread of eight ranks takes milliseconds, so a glance comes first: while the main
thread of any of them runs, no more is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from aggverify.world.process_inspector import HERE, ProcessInspector
from aggverify.world.processes import Look, Thread

_QUIET_LOOKS = 3
_MOST_QUIET_LOOKS = 30
_POLL_SECONDS = 0.1
_POLL_SHARE = 0.2
_TURNS = 10
"""Wake-ups of a thread that wakes by itself, in each of which it would see what has come."""
_TIMED, _TURN = 0.1, 0.0003
"""Share of the looks that must see a thread which polls asleep until a time, and seconds it may use
at each wake-up. One that works has been seen so before, but is not now, or uses more."""
LOOK_EVERY = 0.005
_LOOK_AT_MOST_EVERY = 0.05


def _looks_needed(load: float) -> float:
    """More quiet looks in proportion to what waits for each processor."""
    return min(_QUIET_LOOKS * (1 + 2 * load) if load >= 1 else _QUIET_LOOKS, _MOST_QUIET_LOOKS)


@dataclass(slots=True)
class _Ticks:
    """Looks over some time in which only threads that wake by themselves are switched to.

    They serve to distinguish the waking of those threads from their work.
    """

    first: Look | None = None
    since: float = 0.0
    _polling: Counter[int] = field(default_factory=Counter)
    """By number of a thread that has been seen to sleep until a time: how often since ``first``."""
    _looks: int = 0

    def progress(self) -> None:
        """Begin anew."""
        self.first = None
        self._polling.clear()

    def alone(self, seen: Look, now: float) -> bool:
        """Add a look; True when these have had their turns, and did next to nothing with them."""
        self._polling.update(thread.number for thread in seen.threads if thread.timed)
        first, seen = self.first, seen.with_ticking(self._polling)
        if seen.glance:
            self.first = None if seen.awake else first
            return False
        self._looks += 1
        before = None if first is None else first.with_ticking(self._polling).switches
        if seen.awake or first is None or seen.switches != before:
            self._begin(None if seen.awake else seen, now)
            return False
        both = zip(first.threads, seen.threads, strict=True)
        pairs = [(a, b) for a, b in both if b.ticks and not self._sleeps(a, b)]
        took = now - self.since
        if took < _POLL_SECONDS * _looks_needed(seen.load) / _QUIET_LOOKS:
            return False
        if any(b.switched - a.switched < _TURNS for a, b in pairs):
            return False
        works = any(
            self._polling[b.number] < _TIMED * self._looks
            or b.used - a.used > _TURN * (b.switched - a.switched)
            for a, b in pairs
            if b.number in self._polling
        )
        self._begin(seen, now)
        return not works and sum(b.used - a.used for a, b in pairs) <= _POLL_SHARE * took

    def _sleeps(self, then: Thread, now: Thread) -> bool:
        """Whether a thread that has polled before has slept all this time."""
        is_asleep = now.state == b"S" and now.switched == then.switched
        return is_asleep and now.number in self._polling

    def _begin(self, first: Look | None, now: float) -> None:
        self.first, self.since, self._looks = first, now, 0
        self._polling = Counter(dict.fromkeys(self._polling, 0))


@dataclass(slots=True)
class _Window:
    """Looks over some time, to distinguish polling from work."""

    first: Look | None = None
    since: float = 0.0

    def polling(self, seen: Look, now: float) -> bool:
        """Add a look; True when the time so far shows next to nothing but sleep."""
        first = self.first
        disk = any(thread.state == b"D" for thread in seen.threads)
        if seen.glance:
            if disk:
                self.first = None
            return False
        # Of threads that came or went it is not known what they did.
        if first is None or disk or not _same_threads(first, seen):
            self.first, self.since = seen, now
            return False
        # How long a thread has waited for a processor is known once it has got it.
        if now - self.since < _POLL_SECONDS or seen.running:
            return False
        runnable = sum(thread.runnable for thread in seen.threads)
        before = sum(thread.runnable for thread in first.threads)
        share = (runnable - before) / (now - self.since)
        self.first, self.since = seen, now
        return share <= _POLL_SHARE  # NaN where it is not known: False


def _same_threads(one: Look, other: Look) -> bool:
    return [t.number for t in one.threads] == [t.number for t in other.threads]


@dataclass(slots=True)
class Watchdog:
    """Watches one world; ``progress`` resets it. ``ticking``: see :func:`processes.look`."""

    patience: float
    ticking: Set[bytes] = frozenset()
    inspector: ProcessInspector = HERE
    since: float = 0.0
    next_look: float = 0.0
    _quiet: int = 0
    _last: Look | None = None
    _window: _Window = field(default_factory=_Window)
    _ticks: _Ticks = field(default_factory=_Ticks)
    _pause: float = LOOK_EVERY
    _cpu: dict[int, tuple[float, float]] = field(default_factory=dict)
    _roots: dict[int, int] = field(default_factory=dict)

    def progress(self, now: float) -> None:
        """Note that the world got further."""
        self.since = now
        self.next_look = now + self.patience
        self._quiet = 0
        self._window.first = self._last = None
        self._ticks.progress()
        self._pause = LOOK_EVERY
        self._cpu.clear()
        self._roots.clear()

    def stirred(self, *, held_up: bool) -> None:
        """Note a sign of life that is no progress: the world printed, or sent part of an answer.

        ``held_up``: so much of it that a rank may have slept only until it was read.
        """
        self._quiet = 0
        if held_up:
            self._window.first = self._ticks.first = None

    def blocked(self, pids: Iterable[int], now: float) -> bool:
        """Take a look, which must be due; True when the world is known to be blocked."""
        seen = self.inspector.glance(pids)
        if not seen.running:
            seen = self.inspector.look(pids, self.ticking)
        last, self._last = self._last, seen
        self._note(seen)
        if not seen.threads:  # /proc shows nothing, or all have just ended
            self.next_look = now + _LOOK_AT_MOST_EVERY
            return False
        busy = seen.running and (last is None or last.running)
        # Busy: no need to look often, and looking costs the ranks processor time.
        self._pause = min(2 * self._pause, _LOOK_AT_MOST_EVERY) if busy else LOOK_EVERY
        self.next_look = now + self._pause
        quiet = not seen.running and last is not None and seen.switches == last.switches
        self._quiet = self._quiet + 1 if quiet else 0
        # Both are asked at every look, as each keeps what it has seen.
        polling, ticks = self._window.polling(seen, now), self._ticks.alone(seen, now)
        return polling or ticks or self._quiet >= _looks_needed(seen.load)

    def _note(self, seen: Look) -> None:
        for process, used in seen.cpu.items():
            first, _ = self._cpu.get(process, (used, used))
            self._cpu[process] = first, used
        self._roots |= seen.roots

    def cpu_since_progress(self) -> dict[int, float]:
        """Seconds of processor time per process, with those it started, since progress.

        Counted from the first look at each: what was used before may be from earlier jobs.
        """
        total: dict[int, float] = {}
        for process, (first, used) in self._cpu.items():
            root = self._roots[process]
            total[root] = total.get(root, 0.0) + used - first
        return total
