"""A control group for the launcher and all below it, where the user may make one.

The kernel enforces at once what the fork server, which counts twice a second, may see too late.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aggverify.world import linux, memory

_MOUNT = Path("/sys/fs/cgroup")
_PATIENCE, _PAUSE = 2.0, 0.01
_NAME = "aggverify-ranks"
_MEMBERS = "cgroup.procs"
_ENTER = 'for each in $1; do echo $$ > "$each/cgroup.procs"; done 2>/dev/null; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Group:
    """One folder (version 2), or two (version 1)."""

    folders: tuple[Path, ...]

    def entering(self, command: list[str]) -> list[str]:
        """Return the command preceded by what has it enter the group first."""
        return ["sh", "-c", _ENTER, "sh", " ".join(map(str, self.folders)), *command]

    def holds(self, pid: int) -> bool:
        """Put a process into the group where it is not in it yet; whether it is in it now."""
        return all(_has(folder, pid) or _entered(folder, pid) for folder in self.folders)

    def close(self) -> None:
        """End whatever is in it, and remove it once that is gone."""
        ends = time.monotonic() + _PATIENCE
        while any(map(_is_left, self.folders)) and time.monotonic() < ends:
            time.sleep(_PAUSE)


def _has(folder: Path, pid: int) -> bool:
    try:
        return str(pid) in (folder / _MEMBERS).read_text().split()
    except OSError:
        return False


def _entered(folder: Path, pid: int) -> bool:
    try:
        (folder / _MEMBERS).write_text(f"{pid}\n")
    except OSError:
        return False
    return _has(folder, pid)


def _is_left(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.rmdir()
    with contextlib.suppress(OSError, ValueError):
        for pid in map(int, (folder / _MEMBERS).read_text().split()):
            linux.kill(pid)
    return folder.is_dir()


def made(processes: int, most: int) -> Group | None:
    """Make a group with room for so many processes and threads, and so many bytes.

    None where none can be made, as for most users.
    """
    folders: dict[Path, None] = {}
    name = f"{_NAME}-{_maker(os.getpid())}-{uuid.uuid4().hex}"
    try:
        for around, file, number in _limits(processes, most):
            _sweep(around)
            folder = around / name
            if folder not in folders:
                folder.mkdir()
                folders[folder] = None
            (folder / file).write_text(f"{number}\n")
    except OSError:
        Group(tuple(folders)).close()
        return None
    return Group(tuple(folders))


def _maker(pid: int) -> str:
    """Return a process as part of a folder's name: pid namespace, pid and start time.

    That is unique on a machine, where a pid alone is given again.
    """
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"{namespace}-{pid}-{linux.started(pid)}"


def _sweep(around: Path) -> None:
    """Remove what makers have left behind who were killed.

    A maker that still runs keeps its empty group, which its launcher may be about to enter. Groups
    of other pid namespaces stay, too: their makers cannot be seen.
    """
    own = str(Path("/proc/self/ns/pid").stat().st_ino)
    for old in around.glob(f"{_NAME}-*"):
        _, _, *maker, _ = old.name.split("-")
        if len(maker) == 3 and maker[0] == own and maker[1].isdigit():
            if "-".join(maker) == _maker(int(maker[1])):
                continue
            with contextlib.suppress(OSError):  # in use
                old.rmdir()


def _limits(processes: int, most: int) -> Iterator[tuple[Path, str, int]]:
    """For each limit: the folder to make the group in, the limit's file, and its number."""
    own = memory.groups()
    if "" in own:
        yield own[""], "pids.max", processes
        yield own[""], "memory.max", most
    else:
        yield own.get("pids", _MOUNT / "pids"), "pids.max", processes
        yield own.get("memory", _MOUNT / "memory"), "memory.limit_in_bytes", most
