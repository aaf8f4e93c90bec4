"""Tell a world that is blocked from one that is slow, by looking at its threads in /proc.

A world is blocked when every thread of every unfinished rank, and of the processes it started,
sleeps and has not been switched to between looks: three looks in a row 5 ms apart. A thread that
waits for a processor is runnable, not asleep, so a loaded machine does not look blocked. Ranks
that poll (sleep a moment, look, sleep) do get switched to; they count as blocked when of twenty
looks nearly all find nothing but sleepers, and next to no processor time was used meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from aggverify.world import linux

# gloo's loop wakes every 10 ms by itself.
_IGNORED = b"gloo_tcp_loop"
_STRICT_LOOKS = 3
_POLL_LOOKS = 20
_POLL_ASLEEP = 0.8
_POLL_CPU_SHARE = 0.1
LOOK_EVERY = 0.005
_LOOK_AT_MOST_EVERY = 0.05
_AFTER_OUTPUT = 0.0015
_OVERDUE = 0.01


@dataclass(frozen=True, slots=True)
class Look:
    """One look at some processes: is any thread running, who was switched to how often.

    ``cpu``: seconds of processor time per process looked at, its own children included.
    """

    running: bool
    switches: tuple[tuple[int, int], ...]
    cpu: dict[int, float]


def look(pids: Iterable[int]) -> Look:
    """Read the threads of these processes and of all their descendants."""
    running, switches, cpu = False, [], {}
    for pid in pids:
        total = 0
        for process in _family(pid):
            for thread, awake, switched, nanoseconds in _threads(process):
                running = running or awake
                switches.append((thread, switched))
                total += nanoseconds
        cpu[pid] = total / 1e9
    return Look(running, tuple(sorted(switches)), cpu)


def _family(pid: int) -> list[int]:
    family = [pid]
    for member in family:
        family += linux.children(member)
    return family


def _threads(pid: int) -> list[tuple[int, bool, int, int]]:
    found: list[tuple[int, bool, int, int]] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return found
    for task in tasks:
        # A thread that ends while we look has ended: nothing to note.
        with contextlib.suppress(OSError):
            stat = _read(f"/proc/{pid}/task/{task}/stat")
            opened, closed = stat.index(b"("), stat.rindex(b")")
            if stat[opened + 1 : closed] == _IGNORED:
                continue
            awake = stat[closed + 2 : closed + 3] in b"RD"
            nanoseconds, switched = _scheduled(pid, task)
            found.append((int(task), awake, switched, nanoseconds))
    return found


def _scheduled(pid: int, task: str) -> tuple[int, int]:
    """(processor time in ns, times switched to) of a thread."""
    try:
        used, _, switched = _read(f"/proc/{pid}/task/{task}/schedstat").split()
        return int(used), int(switched)
    except FileNotFoundError:  # a kernel without CONFIG_SCHED_INFO
        lines = _read(f"/proc/{pid}/task/{task}/status").splitlines()
        fields = _read(f"/proc/{pid}/task/{task}/stat").rpartition(b")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return (
            ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),
            sum(int(line.split()[1]) for line in lines if b"ctxt_switches" in line),
        )


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 8192)
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Window:
    """Some looks in a row, to tell polling from work."""

    since: float = 0.0
    cpu: float = 0.0
    looks: int = 0
    asleep: int = 0

    def polling(self, seen: Look, now: float) -> bool:
        """Add a look; True when a full window has shown next to nothing but sleep."""
        used = sum(seen.cpu.values())
        if self.looks == 0:
            self.since, self.cpu = now, used
        self.looks += 1
        self.asleep += not seen.running
        if self.looks < _POLL_LOOKS:
            return False
        idle = used - self.cpu <= _POLL_CPU_SHARE * (now - self.since)
        found = idle and self.asleep >= _POLL_ASLEEP * self.looks
        self.looks = self.asleep = 0
        return found


@dataclass(slots=True)
class Watchdog:
    """Watches one world; ``progress`` resets it."""

    patience: float
    since: float = 0.0
    next_look: float = 0.0
    _quiet: int = 0
    _last: Look | None = None
    _window: _Window = field(default_factory=_Window)
    _pause: float = LOOK_EVERY
    _cpu_from: dict[int, float] = field(default_factory=dict)

    def progress(self, now: float) -> None:
        """The world got further."""
        self.since = now
        self.next_look = now + self.patience
        self._quiet = self._window.looks = self._window.asleep = 0
        self._last = None
        self._pause = LOOK_EVERY
        self._cpu_from.clear()

    def stirred(self, now: float) -> None:
        """The world showed a sign of life, without getting any further: printed something."""
        self._quiet = 0
        if now < self.next_look + _OVERDUE:
            # Looked at right after it has written something, a rank that polls seems at work.
            self.next_look = max(self.next_look, now + _AFTER_OUTPUT)

    def blocked(self, pids: Iterable[int], now: float) -> bool:
        """Take a look, which must be due; True when the world can be said to be blocked."""
        seen = look(pids)
        last, self._last = self._last, seen
        for pid, used in seen.cpu.items():
            self._cpu_from.setdefault(pid, used)
        if not seen.switches:  # /proc tells nothing, or all have just ended
            self.next_look = now + _LOOK_AT_MOST_EVERY
            return False
        busy = seen.running and (last is None or last.running)
        # Busy: no need to look often, and looking costs the ranks processor time.
        self._pause = min(2 * self._pause, _LOOK_AT_MOST_EVERY) if busy else LOOK_EVERY
        self.next_look = now + self._pause
        quiet = not seen.running and last is not None and seen.switches == last.switches
        self._quiet = self._quiet + 1 if quiet else 0
        return self._quiet >= _STRICT_LOOKS or self._window.polling(seen, now)

    def cpu_since_progress(self) -> dict[int, float]:
        """Seconds of processor time per process since the first look after progress."""
        if self._last is None:
            return {}
        return {pid: t - self._cpu_from.get(pid, t) for pid, t in self._last.cpu.items()}
