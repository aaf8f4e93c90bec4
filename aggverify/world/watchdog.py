"""Tell a world that is blocked from one that is slow, by looking at its threads in /proc.

A world is blocked when every thread of every unfinished rank, and of the processes it started,
sleeps and has not been switched to between looks: three looks in a row 5 ms apart, more of them
on a machine with more to do than it has processors. A thread that waits for a processor is
runnable, not asleep, so load by itself does not look like being blocked; but what the kernel does
between two ranks may have to wait as well, and nothing shows that. All this holds for a backend
whose ranks sleep while they wait in a collective.

Ranks that poll (sleep a moment, look, sleep) do get switched to. They count as blocked when over a
tenth of a second all their threads together were runnable for less than a fifth of the time.

Reading every thread of eight ranks takes milliseconds, so a glance comes first: while the main
thread of any of them runs, no more is read.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from aggverify.world import linux

_QUIET_LOOKS = 3
_MOST_QUIET_LOOKS = 30
_POLL_SECONDS = 0.1
_POLL_SHARE = 0.2
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
LOOK_EVERY = 0.005
_LOOK_AT_MOST_EVERY = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Thread:
    """What /proc tells of a thread: state, how often it was switched to, and seconds it was
    runnable, running or waiting for a processor."""

    number: int
    state: bytes
    switched: int
    runnable: float


@dataclass(frozen=True, slots=True)
class Look:
    """One look at some processes and those they started; ``cpu``: seconds per process.

    ``roots`` says whom each of them descends from. A mere ``glance`` has the main threads of the
    processes themselves only.
    """

    threads: tuple[Thread, ...]
    cpu: dict[int, float]
    roots: dict[int, int]
    glance: bool = False

    @property
    def running(self) -> bool:
        """Whether a thread runs, wants to, or waits for a disk."""
        return any(thread.state in b"RD" for thread in self.threads)

    @property
    def switches(self) -> list[tuple[int, int]]:
        """Per thread, how often it was switched to."""
        return [(thread.number, thread.switched) for thread in self.threads]


def look(pids: Iterable[int], ticking: Set[bytes] = frozenset()) -> Look:
    """Read the threads of these processes and of all their descendants.

    ``ticking``: names of threads that wake by themselves: being switched to means nothing there,
    wanting to run does.
    """
    roots = {member: pid for pid in pids for member in _family(pid)}
    threads = [thread for process in roots for thread in _threads(process, ticking)]
    cpu = {process: stat.cpu for process in roots if (stat := _stat(f"/proc/{process}"))}
    return Look(tuple(sorted(threads, key=lambda thread: thread.number)), cpu, roots)


def glance(pids: Iterable[int]) -> Look:
    """Read no more than the main threads of these processes."""
    stats = {pid: stat for pid in pids if (stat := _stat(f"/proc/{pid}"))}
    threads = tuple(Thread(pid, stat.state, 0, 0.0) for pid, stat in stats.items())
    return Look(threads, {p: s.cpu for p, s in stats.items()}, {p: p for p in stats}, glance=True)


def _family(pid: int) -> list[int]:
    family = [pid]
    for member in family:
        family += linux.children(member)
    return family


class _Stat(NamedTuple):
    """Of a process or thread: its name, state, and seconds of processor time."""

    name: bytes
    state: bytes
    cpu: float


def _stat(folder: str) -> _Stat | None:
    """None once it has ended, also where nobody has taken note of that: it does not sleep."""
    try:
        stat = _read(f"{folder}/stat")
    except OSError:
        return None
    opened, closed = stat.index(b"("), stat.rindex(b")")
    fields = stat[closed + 2 :].split(maxsplit=13)
    if fields[0] in b"ZX":
        return None
    return _Stat(stat[opened + 1 : closed], fields[0], (int(fields[11]) + int(fields[12])) / _TICKS)


def _threads(pid: int, ticking: Set[bytes]) -> list[Thread]:
    found: list[Thread] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return found
    for task in tasks:
        # A thread that ends while we look has ended: nothing to note.
        with contextlib.suppress(OSError):
            folder = f"/proc/{pid}/task/{task}"
            if (stat := _stat(folder)) is not None:
                switched, runnable = _scheduled(folder)
                if stat.name in ticking:
                    switched = 0
                found.append(Thread(int(task), stat.state, switched, runnable))
    return found


def _scheduled(folder: str) -> tuple[int, float]:
    """(times switched to, seconds runnable) of a thread."""
    try:
        used, waited, switched = map(int, _read(f"{folder}/schedstat").split())
        return switched, (used + waited) / 1e9
    except FileNotFoundError:  # a kernel without CONFIG_SCHED_INFO
        lines = _read(f"{folder}/status").splitlines()
        switched = sum(int(line.split()[1]) for line in lines if b"ctxt_switches" in line)
        # How long it waited is not known: polling is then left to the limit on silence.
        return switched, math.inf


def _looks_needed() -> float:
    """More quiet looks in proportion to what waits for each processor."""
    try:
        runnable = int(_read("/proc/loadavg").split()[3].split(b"/")[0])
    except (OSError, ValueError):
        return _QUIET_LOOKS
    # This process is one of them, while it looks.
    load = (runnable - 1) / _PROCESSORS
    return min(_QUIET_LOOKS * (1 + 2 * load) if load >= 1 else _QUIET_LOOKS, _MOST_QUIET_LOOKS)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 8192)
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Window:
    """Looks over some time, to tell polling from work."""

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
    """Watches one world; ``progress`` resets it. ``ticking``: see :func:`look`."""

    patience: float
    ticking: Set[bytes] = frozenset()
    since: float = 0.0
    next_look: float = 0.0
    _quiet: int = 0
    _last: Look | None = None
    _window: _Window = field(default_factory=_Window)
    _pause: float = LOOK_EVERY
    _cpu: dict[int, tuple[float, float]] = field(default_factory=dict)
    _roots: dict[int, int] = field(default_factory=dict)

    def progress(self, now: float) -> None:
        """The world got further."""
        self.since = now
        self.next_look = now + self.patience
        self._quiet = 0
        self._window.first = self._last = None
        self._pause = LOOK_EVERY
        self._cpu.clear()
        self._roots.clear()

    def stirred(self, *, held_up: bool) -> None:
        """The world showed a sign of life, without getting any further: printed something.

        ``held_up``: so much of it that a rank may have slept only until it was read.
        """
        self._quiet = 0
        if held_up:
            self._window.first = None

    def blocked(self, pids: Iterable[int], now: float) -> bool:
        """Take a look, which must be due; True when the world can be said to be blocked."""
        seen = glance(pids)
        if not seen.running:
            seen = look(pids, self.ticking)
        last, self._last = self._last, seen
        self._note(seen)
        if not seen.threads:  # /proc tells nothing, or all have just ended
            self.next_look = now + _LOOK_AT_MOST_EVERY
            return False
        busy = seen.running and (last is None or last.running)
        # Busy: no need to look often, and looking costs the ranks processor time.
        self._pause = min(2 * self._pause, _LOOK_AT_MOST_EVERY) if busy else LOOK_EVERY
        self.next_look = now + self._pause
        quiet = not seen.running and last is not None and seen.switches == last.switches
        self._quiet = self._quiet + 1 if quiet else 0
        polling = self._window.polling(seen, now)
        return polling or (self._quiet >= _QUIET_LOOKS and self._quiet >= _looks_needed())

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
