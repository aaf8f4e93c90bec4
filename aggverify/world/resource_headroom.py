"""How much headroom the machine leaves for ranks: processes and open files, and what reports it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from aggverify.world import memory

_ROOT = Path("/")
_ENOUGH = {"processes": 2000, "open files": 200}
"""Where so many are left, no limit is reported: all worlds of a run together take a few hundred
threads, and three files a rank."""
_INTERPRETER = 150 << 20
"""Bytes that an interpreter takes for itself, torch imported (145 MiB with torch 2.13)."""
NO_MORE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors of the kernel that refuses one more process, thread or open file."""


_MESSAGES: Mapping[str, tuple[str, ...]] = {
    "processes": (os.strerror(errno.EAGAIN), "start new thread"),
    "open files": (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)),
}
"""Parts of messages of the kernel, torch and the interpreter to code that asked for one more. None
is about memory, of which a rank has its own limit."""


def ran_out(message: str) -> bool:
    """Whether an exception, or the last words of a process, report that there was no more."""
    return bool(_lacking(message))


def _lacking(message: str) -> set[str]:
    """Return what a message reports to be used up."""
    return {
        what for what, messages in _MESSAGES.items() if any(words in message for words in messages)
    }


def tight(root: Path = _ROOT) -> tuple[str, ...]:
    """Return the limits that may keep ranks from running, in words; none where all have room."""
    return tuple(text for _, text in _limits(root))


def _limits(root: Path) -> Iterator[tuple[str, str]]:
    """Limits that are nearly reached: what each is on, and its sentence."""
    for folder in _groups(root):
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / "pids.max").read_text())
            now = int((folder / "pids.current").read_text())
            if most - now < _ENOUGH["processes"]:
                name = f"/{(folder / 'pids.max').relative_to(root)}"
                yield "processes", f"{name} is {most}, and {now} processes and threads are there"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() and 0 <= soft < _ENOUGH["processes"]:
        yield "processes", f"the limit on this user's processes (ulimit -u) is {soft}"
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _ENOUGH["open files"]:
        yield "open files", f"the limit on open files (ulimit -n) is {soft}"


def no_memory_to_launch(ranks: int, root: Path = _ROOT) -> str:
    """Return why so many ranks cannot be launched, "" where there is memory for each and one more.

    Each has an interpreter, and one more launches them. In a control group without that memory the
    kernel would end the largest process: the command itself.
    """
    needed, left = (1 + ranks) * _INTERPRETER >> 20, memory.free(root) >> 20
    if needed <= left:
        return ""
    return (
        f"{ranks} launched ranks, which import torch each, need {needed} MiB of memory, and "
        f"{left} MiB are free"
    )


class PidsWatch:
    """Whether a control group has refused a process or thread since this was made."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._before = self._refusals()

    def refused(self) -> bool:
        """Whether the control group has refused a process or thread.

        A process that was refused may wait for it, or others for that process.
        """
        return self._refusals() > self._before

    def _refusals(self) -> int:
        found = 0
        for folder in _groups(self._root):
            with contextlib.suppress(OSError, ValueError):
                lines = (line.split() for line in (folder / "pids.events").read_text().splitlines())
                found += sum(int(number) for name, number in lines if name == "max")
        return found


def _groups(root: Path) -> Iterator[Path]:
    """Folders of this process's control group and of those around it, version 1 or 2."""
    mount = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for controllers, path in memory.memberships(root):
            if "" not in controllers and "pids" not in controllers:
                continue
            base = mount if "" in controllers else mount / "pids"
            folder = base / path.strip("/")
            # In a container the group's own path is often not to be seen, and the mount is it.
            folder = folder if folder.is_dir() else base
            yield from (each for each in (folder, *folder.parents) if base in (each, *each.parents))


def without(text: str, why: str | None, root: Path = _ROOT) -> str:
    """Return what cannot be done and why, with the limits that may be to blame."""
    lacking = _lacking(why or "") or set(_MESSAGES)
    limits = "; ".join(text for what, text in _limits(root) if what in lacking)
    return f"{text}: {why or 'no room'}" + (f" ({limits})" if limits else "")
