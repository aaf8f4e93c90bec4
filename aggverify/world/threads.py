"""Threads that an import has left running: whether ranks may be forked next to them.

A fork keeps the thread that forks, and no other. A thread of Python's was started for a purpose,
and may hold locks that a rank needs. One that never enters Python and sleeps, as jemalloc's for
housekeeping does, is mostly not missed; where it is after all, ranks fail, and the pool has each
rank import for itself.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import Literal

Threads = Literal["none", "asleep", "at work"]
_LOOKS, _PAUSE = 5, 0.005
_MOST_LOOKS = 60
"""In all, since a thread that was just started may still be at work for a moment."""


def left_over() -> Threads:
    """Return what threads there are besides this one; any thread of Python's counts as at work."""
    if not _others():
        return "none"
    if threading.active_count() > 1 or len(sys._current_frames()) > 1:
        return "at work"
    quiet = 0
    for _ in range(_MOST_LOOKS):
        quiet = quiet + 1 if all(map(_sleeps, _others())) else 0
        if quiet == _LOOKS:
            return "asleep"
        time.sleep(_PAUSE)
    return "at work"


def _others() -> list[Path]:
    me = str(threading.get_native_id())
    return [task for task in Path("/proc/self/task").iterdir() if task.name != me]


def _sleeps(task: Path) -> bool:
    with contextlib.suppress(OSError):  # ended meanwhile
        return (task / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"S"
    return True
