"""Tell a world that is blocked from one that is slow, by looking at its threads in /proc.

A world is blocked when every thread of every unfinished rank, and of the processes it started,
sleeps and has not been switched to between looks: three looks in a row 5 ms apart. A thread that
waits for a processor is runnable, not asleep, so a loaded machine does not look blocked. Ranks
that poll (sleep a moment, look, sleep) do get switched to; they count as blocked when twenty
looks in a row find nothing but sleepers that use next to no processor time.
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
_LOOSE_LOOKS = 20
_LOOSE_SHARE = 0.1
LOOK_EVERY = 0.005
_LOOK_AT_MOST_EVERY = 0.05


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
        tasks = os.listdir(f"/proc/{pid}/task")
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
class Watchdog:
    """Watches one world; ``progress`` resets it."""

    patience: float
    since: float = 0.0
    next_look: float = 0.0
    _strict: int = 0
    _loose: int = 0
    _last: Look | None = None
    _loose_from: tuple[float, float] = (0.0, 0.0)
    _pause: float = LOOK_EVERY
    _cpu_from: dict[int, float] = field(default_factory=dict)

    def progress(self, now: float) -> None:
        """Something came from the world."""
        self.since = now
        self.next_look = now + self.patience
        self._strict = self._loose = 0
        self._last = None
        self._pause = LOOK_EVERY
        self._cpu_from.clear()

    def blocked(self, pids: Iterable[int], now: float) -> bool:
        """Take a look, which must be due; True when the world can be said to be blocked."""
        seen = look(pids)
        last, self._last = self._last, seen
        for pid, used in seen.cpu.items():
            self._cpu_from.setdefault(pid, used)
        if seen.running or not seen.switches:
            self._strict = self._loose = 0
            # Busy: no need to look often, and looking costs the ranks processor time.
            self._pause = min(2 * self._pause, _LOOK_AT_MOST_EVERY)
            self.next_look = now + self._pause
            return False
        self._pause = LOOK_EVERY
        self.next_look = now + LOOK_EVERY
        unchanged = last is not None and seen.switches == last.switches
        self._strict = self._strict + 1 if unchanged else 0
        return self._strict >= _STRICT_LOOKS or self._polls(seen, now)

    def _polls(self, seen: Look, now: float) -> bool:
        used = sum(seen.cpu.values())
        if self._loose == 0:
            self._loose_from = (now, used)
        self._loose += 1
        began, used_then = self._loose_from
        idle = used - used_then <= _LOOSE_SHARE * (now - began)
        if not idle:
            self._loose = 0
        return self._loose >= _LOOSE_LOOKS

    def cpu_since_progress(self) -> dict[int, float]:
        """Seconds of processor time per process since the first look after progress."""
        if self._last is None:
            return {}
        return {pid: t - self._cpu_from.get(pid, t) for pid, t in self._last.cpu.items()}
