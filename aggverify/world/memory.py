"""The kernel's own account of memory: how often it has ended a process of ours for lack of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> tuple[str, int] | None:
    """The file that says it, and the number; None where none can be read.

    Of this process's control group (version 2, then 1), else of the whole machine.
    """
    for file in _files(root):
        with contextlib.suppress(OSError, ValueError, KeyError):
            lines = (line.split() for line in file.read_text().splitlines())
            return f"/{file.relative_to(root)}", int(dict(lines)["oom_kill"])
    return None


def _files(root: Path) -> Iterator[Path]:
    groups = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _either(groups, path, "memory.events")
            elif "memory" in controllers.split(","):
                yield from _either(groups / "memory", path, "memory.oom_control")
    yield root / "proc/vmstat"


def _either(mount: Path, path: str, name: str) -> Iterator[Path]:
    """In a container the group's own path is often not to be seen, and the mount is the group."""
    own = mount / path.strip("/") / name
    yield from filter(Path.is_file, (own, mount / name))


class Watched:
    """Whether the kernel has ended a process for lack of memory since this was made."""

    def __init__(self) -> None:
        self._before = oom_kills()

    def said(self) -> str:
        """The kernel's words, "" for none."""
        now = oom_kills()
        if now is None or self._before is None or now[1] <= self._before[1]:
            return ""
        return f"oom_kill {self._before[1]} -> {now[1]} in {now[0]}"
