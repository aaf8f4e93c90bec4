"""The few system calls Python has no name for, and process trees read from /proc.

/proc is read by hand, not by psutil, for three reasons (psutil 7.2.2, 150 processes on the
machine, 8 ranks):

- for the children of one process psutil reads all processes: 10 ms against 0.04 ms by the kernel's
  own list. A look at a world (``processes.look``) would take 120 ms instead of 1.3 ms, and a hang
  is to be found in 100 ms;
- it has no state of a thread, no count of its switches and no time that it was runnable, by which
  ``watchdog`` distinguishes waiting from work;
- it does not separate a process's own memory from memory files (``memory``), nor pids in
  another namespace (``child``).

For the rest psutil would save no code, and its import takes 20 ms of each start.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_M_ARENA_MAX = -8


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Be sent ``by`` when the thread that made this process ends; exit if ``parent`` is gone."""
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be ended too."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def run_as_batch() -> None:
    """Declare to the scheduler that this is batch work.

    gloo's loop thread otherwise spins on locks whose holder was preempted: 2 to 2.7 times slower
    on two cores. A hint only, so a refusal does not matter.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def share_one_heap() -> None:
    """Let all threads of this process, and of those it forks, allocate from one heap.

    glibc reserves 64 MiB of address space for each thread otherwise, which the three threads of
    every gloo group would soon take out of a rank's limit. Other C libraries have no such heaps.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def children(pid: int) -> list[int]:
    """Direct children of a process, zombies included; empty when it is gone.

    The kernel's own list leaves out some when another one, or a thread, ends while it is read: it
    is read again then, and after ``_LOOKS`` times every process is asked for its parent.
    """
    for _ in range(_LOOKS if _kernel_lists_children() else 0):
        try:
            tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        except OSError:
            return []
        found = _listed(pid, tasks)
        if found is not None and all(os.path.exists(f"/proc/{each}") for each in found):  # noqa: PTH110
            return found
    return _children_by_scan(pid)


_LOOKS = 8


@functools.cache
def _kernel_lists_children() -> bool:
    return Path("/proc/thread-self/children").exists()


def _listed(pid: int, tasks: Iterable[str]) -> list[int] | None:
    """Return the children that the kernel lists for these threads, None where one of them ends."""
    found: list[int] = []
    try:
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
            os.stat(f"/proc/{pid}/task/{task}")  # noqa: PTH116
    except OSError:
        return None
    return found


NO_PROCESS = 1 << 22
"""A pid that no process can have."""


def child(of: int, number: int) -> int:
    """Return the child of a process whose own pid, in its pid namespace, is this number.

    ``NO_PROCESS`` where there is none.
    """
    every = sorted(children(of), key=lambda pid: pid != number)  # mostly the same one: ask it first
    return next((pid for pid in every if _own_number(pid) == number), NO_PROCESS)


def _own_number(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
    return None


def started(pid: int) -> int:
    """When a process started, in clock ticks since the machine did; 0 where there is none."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[_START])
    return 0


def _children_by_scan(pid: int) -> list[int]:
    return _of_all(_PARENT, pid)


_PARENT, _GROUP, _START = 1, 2, 19
"""Places in the kernel's line on a process, after its name."""


def _of_all(place: int, number: int) -> list[int]:
    """Return all processes, zombies included, that have this number at a place of their line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                stat = (entry / "stat").read_bytes()
                if int(stat.rpartition(b")")[2].split()[place]) == number:
                    found.append(int(entry.name))
    return found


def descendants(pid: int, most: int = sys.maxsize) -> list[int]:
    """Return the processes below one, zombies included; about ``most`` of them at most."""
    found: list[int] = []
    for member in chain([pid], found):
        found += children(member)
        if len(found) >= most:
            break
    return found


def in_group(group: int) -> list[int]:
    """Return the processes of a process group, zombies included."""
    return _of_all(_GROUP, group)


def end_tree(pid: int) -> None:
    """SIGKILL a process and all below it, even while they fork.

    Whole groups first, which the kernel ends at one blow; then what has left its group, stopped
    before it is ended, so that it forks no more meanwhile.
    """
    _signal(pid, signal.SIGSTOP)
    for group in _groups(children(pid)) - {os.getpgid(0)}:
        kill_group(group)
    stopped: set[int] = set()
    while new := {pid, *descendants(pid)} - stopped:
        for each in new:
            _signal(each, signal.SIGSTOP)
        stopped |= new
    for each in stopped:
        _signal(each, signal.SIGKILL)


def _groups(pids: Iterable[int]) -> set[int]:
    """Return the process groups of these, of which some may be gone."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(os.getpgid(pid))
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_main_thread(pid: int, number: int) -> None:
    """Send a signal to the main thread; raises OSError.

    os.kill gives it to any thread: of a process that was stopped, to the first that goes on, and
    the others run meanwhile.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):  # before glibc 2.30
        os.kill(pid, number)
    elif libc.tgkill(pid, pid, number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def wake(pid: int) -> None:
    """Let a process go on that was stopped."""
    _signal(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """SIGKILL a process, which may be gone."""
    _signal(pid, signal.SIGKILL)


def kill_group(group: int) -> None:
    """SIGKILL a process group, which may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def end_descendants() -> None:
    """Kill and reap children of this process until none is left, adopted ones included."""
    while True:
        for pid in children(os.getpid()):
            kill(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def end_marked(mark: str) -> None:
    """Kill every process that was started with ``mark`` in its environment.

    For what a crashed launcher has left behind; who its ancestors were is lost then.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # Gone meanwhile, or somebody else's.
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    kill(int(entry.name))


def unsupported() -> str | None:
    """Why ranks cannot run on this system, None when they can."""
    if not sys.platform.startswith("linux"):
        return f"ranks need Linux (fork, /proc, memfd); this is {sys.platform}: use a container"
    if not os.access("/proc/self/fd", os.R_OK):
        return "ranks need /proc, which is not mounted here"
    return None
