"""Processes that do nothing but look whether something has come, and sleep again.

On a busy machine they are hardly ever seen asleep: each time they wake they wait for a processor,
as one does that has work. What tells them apart is how little they do each time before they go to
sleep by themselves; who has work is made to leave the processor instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_LITTLE = 0.0003
"""Seconds of processor time each time it wakes: a look takes a third of that."""
_OFTEN = 20
"""Times that each has gone to sleep, to be said to do nothing else."""


class _Slept(NamedTuple):
    """How often a process has gone to sleep by itself, and the processor time it has had."""

    times: int
    used: float


@dataclass(slots=True)
class Polling:
    """Looks at some processes, one after another."""

    _since: float = 0.0
    _first: dict[int, _Slept] = field(default_factory=dict)

    def seconds(self, pids: Iterable[int], now: float) -> float:
        """For how long each of them has done nothing else; 0 while that is not known."""
        seen = {pid: slept for pid in pids if (slept := _slept(pid)) is not None}
        if seen.keys() != self._first.keys() or any(
            slept.used - self._first[pid].used
            > _LITTLE * max(slept.times - self._first[pid].times, _OFTEN)
            for pid, slept in seen.items()
        ):
            self._first, self._since = seen, now
            return 0.0
        often = all(slept.times - self._first[pid].times >= _OFTEN for pid, slept in seen.items())
        return now - self._since if seen and often else 0.0


def _slept(pid: int) -> _Slept | None:
    """None where it has ended, or the kernel does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text()
        _, _, after = status.partition("\nvoluntary_ctxt_switches:")
        used, *_ = (folder / "schedstat").read_text().split()
        return _Slept(int(after.split()[0]), int(used) / 1e9)
    return None
