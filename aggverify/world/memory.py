"""The kernel's own account of memory.

How much there is, how much is a process's own, and how often one of ours was ended for lack of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> tuple[str, int] | None:
    """Return the file that counts processes ended for lack of memory, and the number.

    Of this process's control group (version 2, then 1), else of the whole machine; None where none
    can be read.
    """
    for file in _files(root):
        with contextlib.suppress(OSError, ValueError, KeyError):
            lines = (line.split() for line in file.read_text().splitlines())
            return f"/{file.relative_to(root)}", int(dict(lines)["oom_kill"])
    return None


def _files(root: Path) -> Iterator[Path]:
    mount = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for controllers, path in memberships(root):
            if "" in controllers:
                yield from _either(mount, path, "memory.events")
            elif "memory" in controllers:
                yield from _either(mount / "memory", path, "memory.oom_control")
    yield root / "proc/vmstat"


def memberships(root: Path = _ROOT) -> Iterator[tuple[list[str], str]]:
    """Control groups of this process: the controllers of each, [""] for version 2, and its path.

    Raises OSError where that cannot be read.
    """
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        yield controllers.split(","), path


def _either(mount: Path, path: str, name: str) -> Iterator[Path]:
    """Where that file is: in a container often not in the group's path, and the mount is it."""
    own = mount / path.strip("/") / name
    yield from filter(Path.is_file, (own, mount / name))


def groups(root: Path = _ROOT) -> dict[str, Path]:
    """Return the folder of this process's control group for each controller (version 1).

    For "" it is the one for all (version 2). Those that cannot be seen are left out.
    """
    found: dict[str, Path] = {}
    mount = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for controllers, path in memberships(root):
            for name in controllers:
                base = mount / name
                own = base / path.strip("/")
                # Where version 1 is mounted the mount itself is no group of version 2.
                if base.is_dir() and (name or (mount / "cgroup.controllers").is_file()):
                    found |= {name: own if own.is_dir() else base}
    return found


def free(root: Path = _ROOT) -> int:
    """Bytes that processes may still take, of the machine and of this process's control group.

    Pages of files that the kernel can drop count as free, as they do in MemAvailable: a container
    that has read much would seem to have no memory otherwise.
    """
    lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    found = [next(1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:")]
    own = groups(root)
    for folder, most, now in (
        (own.get(""), "memory.max", "memory.current"),
        (own.get("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        if folder is not None:
            with contextlib.suppress(OSError, ValueError):  # "max"
                limit, used = (int((folder / file).read_text()) for file in (most, now))
                found.append(limit - used + _dropped(folder))
    return max(0, min(found))


def _dropped(folder: Path) -> int:
    """Bytes of files that the kernel drops when a control group needs memory."""
    with contextlib.suppress(OSError, ValueError):
        lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        found = {words[0].removeprefix("total_"): int(words[1]) for words in lines}
        return found.get("inactive_file", 0) + found.get("active_file", 0)
    return 0


class Own(NamedTuple):
    """What a process holds, all 0 once it is gone.

    Bytes that are its alone, bytes in shared memory (neither are pages of files), and threads.
    """

    anonymous: int = 0
    shared: int = 0
    threads: int = 0


def own(pid: int) -> Own:
    """Return what a process holds."""
    with contextlib.suppress(OSError):
        lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        found = {words[0]: int(words[1]) for words in lines if words[0] in _OWN}
        anonymous, shared, threads = (found.get(name, 0) for name in _OWN)
        return Own(1024 * anonymous, 1024 * shared, threads)
    return Own()


def in_files(pids: Iterable[int]) -> int:
    """Return the bytes in memory files (memfd) that these processes hold open, each file once.

    Pages that were written and never mapped are in no process's own account.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for each in os.listdir(folder):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    path = f"{folder}/{each}"
                    if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115
                        file = os.stat(path)  # noqa: PTH116
                        found[file.st_dev, file.st_ino] = 512 * file.st_blocks
    return sum(found.values())


_OWN = ("RssAnon:", "RssShmem:", "Threads:")


class OomWatch:
    """Whether the kernel has ended a process for lack of memory since this was made."""

    def __init__(self) -> None:
        self._before = oom_kills()

    def kernel_report(self) -> str:
        """Return the kernel's words, "" for none."""
        now = oom_kills()
        if now is None or self._before is None or now[1] <= self._before[1]:
            return ""
        return f"oom_kill {self._before[1]} -> {now[1]} in {now[0]}"
