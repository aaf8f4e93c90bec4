"""Tells blocked ranks from slow ones by looking at their threads in /proc (Linux)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIRST_LOOK = 0.030
"""Seconds of silence before the first look."""
INTERVAL = 0.005
STILL_LOOKS = 3
"""Unchanged looks in a row that mean blocked."""
_GLOO_LOOP = "gloo"
"""gloo's event loop thread wakes every 10 ms and says nothing about progress."""
_TICKS = os.sysconf("SC_CLK_TCK")

Snapshot = tuple[tuple[int, int], ...]


def cpu_seconds(pid: int) -> float:
    """CPU time a process has used; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _snapshot(pid: int) -> Snapshot | None:
    """(thread, context switches) of every thread that matters; None while one is running."""
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        for thread in threads:
            base = Path(f"/proc/{pid}/task/{thread}")
            if (base / "comm").read_text().startswith(_GLOO_LOOP):
                continue
            switches = 0
            for line in (base / "status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name == "State" and value.split()[0] not in "SD":
                    return None
                if name.endswith("ctxt_switches"):
                    switches += int(value)
            found.append((int(thread), switches))
    except (OSError, ValueError):
        return None
    return tuple(sorted(found))


@dataclass(slots=True)
class Watch:
    """Watches the unfinished ranks of one world for the current job."""

    last_sign: float = field(default_factory=time.monotonic)
    _still: int = 0
    _seen: tuple[Snapshot, ...] = ()
    _cpu: dict[int, float] = field(default_factory=dict)

    def sign(self) -> None:
        """A reply came: the world is alive."""
        self.last_sign = time.monotonic()
        self._still, self._seen = 0, ()
        self._cpu.clear()

    def due(self) -> bool:
        """Whether it is time to look."""
        return time.monotonic() - self.last_sign >= FIRST_LOOK

    def blocked(self, pids: Sequence[int]) -> bool:
        """One look; True when nothing has moved for STILL_LOOKS looks in a row."""
        now = [_snapshot(pid) for pid in pids]
        seen = tuple(s for s in now if s is not None)
        if len(seen) == len(now) and seen == self._seen:
            self._still += 1
        else:
            self._still = 0
        self._seen = seen if len(seen) == len(now) else ()
        return self._still >= STILL_LOOKS

    def runaway(self, pids: Sequence[int], limit: float) -> int | None:
        """The pid that used more CPU time than the limit since the last sign of life, or None."""
        for pid in pids:
            used = cpu_seconds(pid)
            if used - self._cpu.setdefault(pid, used) > limit:
                return pid
        return None
