"""Processes that do nothing but look whether something has come, and sleep again.

On a busy machine they are hardly ever seen asleep: each time they wake they wait for a processor,
as one does that has work. What distinguishes them is how little they do each time before they go to
sleep by themselves; who has work is made to leave the processor instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aggverify.world.process_inspector import HERE, ProcessInspector
from aggverify.world.processes import Slept

_LITTLE = 0.0003
"""Seconds of processor time per wake-up at most: looking for something takes a third of that."""
_OFTEN = 20
"""Times that each must have gone to sleep before it is taken to do nothing else."""


@dataclass(slots=True)
class Polling:
    """Looks at some processes, one after another."""

    inspector: ProcessInspector = HERE
    _since: float = 0.0
    _first: dict[int, Slept] = field(default_factory=dict)

    def seconds(self, pids: Iterable[int], now: float) -> float:
        """Return for how long all of them have only polled; 0 while that is not known."""
        seen = {pid: slept for pid in pids if (slept := self.inspector.slept(pid)) is not None}
        if seen.keys() != self._first.keys() or any(
            slept.used - self._first[pid].used
            > _LITTLE * max(slept.times - self._first[pid].times, _OFTEN)
            for pid, slept in seen.items()
        ):
            self._first, self._since = seen, now
            return 0.0
        often = all(slept.times - self._first[pid].times >= _OFTEN for pid, slept in seen.items())
        return now - self._since if seen and often else 0.0
