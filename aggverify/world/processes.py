"""What /proc shows of processes and of their threads."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Container, Iterable, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aggverify.world import linux

_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Thread:
    """What /proc shows of a thread.

    That is its state, how often it was switched to, seconds it had a processor and seconds it was
    runnable, running or waiting for one.

    ``ticks``: whether it wakes by itself, however long nothing happens. ``timed``: whether it is
    seen to sleep until a time, as one that polls does.
    """

    number: int
    state: bytes
    switched: int
    used: float
    runnable: float
    ticks: bool = False
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """One look at some processes and their descendants.

    ``cpu``: seconds of processor time per process. ``roots``: for each process the one asked for
    that it descends from, or is. ``load``: how many threads want to run for each processor of the
    machine. A ``glance`` has only the main threads of the processes asked for.
    """

    threads: tuple[Thread, ...]
    cpu: dict[int, float]
    roots: dict[int, int]
    glance: bool = False
    load: float = 0.0

    @property
    def running(self) -> bool:
        """Whether a thread runs, wants to, or waits for a disk."""
        return any(thread.state in b"RD" for thread in self.threads)

    @property
    def awake(self) -> bool:
        """As ``running``, of the threads that do not wake by themselves."""
        return any(thread.state in b"RD" for thread in self.threads if not thread.ticks)

    @property
    def switches(self) -> list[tuple[int, int]]:
        """Per thread, how often it was switched to; 0 for those that wake by themselves."""
        return [(each.number, 0 if each.ticks else each.switched) for each in self.threads]

    def with_ticking(self, numbers: Container[int]) -> Look:
        """Return it with these threads among those that wake by themselves."""
        threads = (replace(t, ticks=t.ticks or t.number in numbers) for t in self.threads)
        return replace(self, threads=tuple(threads))


def look(pids: Iterable[int], ticking: Set[bytes] = frozenset()) -> Look:
    """Read the threads of these processes and of all their descendants.

    ``ticking``: names of threads that wake by themselves: being switched to means nothing there,
    wanting to run does.
    """
    roots = {member: pid for pid in pids for member in (pid, *linux.descendants(pid))}
    threads = [thread for process in roots for thread in _threads(process, ticking)]
    cpu = {process: stat.cpu for process in roots if (stat := _stat(f"/proc/{process}"))}
    return Look(tuple(sorted(threads, key=lambda thread: thread.number)), cpu, roots, load=_load())


def glance(pids: Iterable[int]) -> Look:
    """Read no more than the main threads of these processes."""
    stats = {pid: stat for pid in pids if (stat := _stat(f"/proc/{pid}"))}
    threads = tuple(Thread(pid, stat.state, 0, 0.0, 0.0) for pid, stat in stats.items())
    return Look(threads, {p: s.cpu for p, s in stats.items()}, {p: p for p in stats}, glance=True)


class _Stat(NamedTuple):
    """Of a process or thread: its name, state, and seconds of processor time."""

    name: bytes
    state: bytes
    cpu: float


def _stat(folder: str) -> _Stat | None:
    """Read it; None once it has ended, a zombie included, which would pass for one that sleeps."""
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
                scheduled, ticks = _scheduled(folder), stat.name in ticking
                timed = bool(ticking) and not ticks and stat.state == b"S" and _is_timed(folder)
                found.append(Thread(int(task), stat.state, *scheduled, ticks, timed))
    return found


def _scheduled(folder: str) -> tuple[int, float, float]:
    """Return (times switched to, seconds on a processor, seconds runnable) of a thread."""
    try:
        used, waited, switched = map(int, _read(f"{folder}/schedstat").split())
        return switched, used / 1e9, (used + waited) / 1e9
    except FileNotFoundError:  # a kernel without CONFIG_SCHED_INFO
        lines = _read(f"{folder}/status").splitlines()
        switched = sum(int(line.split()[1]) for line in lines if b"ctxt_switches" in line)
        # For how long is not known: ranks that poll are then ended by the limit on silence.
        return switched, math.inf, math.inf


def _is_timed(folder: str) -> bool:
    """Whether a sleeping thread sleeps until a time; False where the kernel does not show it."""
    try:
        return b"nanosleep" in _read(f"{folder}/wchan")
    except OSError:
        return False


def _load() -> float:
    """Threads that want to run, for each processor."""
    try:
        runnable = int(_read("/proc/loadavg").split()[3].split(b"/")[0])
    except (OSError, ValueError):
        return 0.0
    # This process is one of them, while it looks.
    return (runnable - 1) / _PROCESSORS


def contention(pids: Iterable[int]) -> float:
    """Return how many times longer these processes, and this one, take than on an idle machine.

    It is the time that their main threads ran or waited for a processor over the time that they
    ran; 1.0 where the kernel does not show it.
    """
    total = ran = 0.0
    for pid in (os.getpid(), *pids):
        with contextlib.suppress(OSError, ValueError):  # ended, or no CONFIG_SCHED_INFO
            used, waited, _ = map(int, _read(f"/proc/{pid}/schedstat").split())
            ran, total = ran + used, total + used + waited
    return total / ran if ran else 1.0


class Slept(NamedTuple):
    """How often a process has gone to sleep by itself, and the processor time it has had."""

    times: int
    used: float


def slept(pid: int) -> Slept | None:
    """Read it; None where the process has ended, or the kernel does not show it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text()
        _, _, after = status.partition("\nvoluntary_ctxt_switches:")
        used, *_ = (folder / "schedstat").read_text().split()
        return Slept(int(after.split()[0]), int(used) / 1e9)
    return None


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 8192)
    finally:
        os.close(fd)
