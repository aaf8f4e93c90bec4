"""Seconds in which this process was at work.

Those in which it was stopped, or did something else, do not count against others: it could not have
read their answers meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

AWAY = 1.0
"""Seconds without being asked after which it is taken to have been away."""


@dataclass(slots=True)
class Clock:
    """Asked at every turn of a loop; runs as ``time.monotonic`` as long as it is."""

    _last: float = 0.0
    _lost: float = 0.0
    away: bool = False
    """Whether that was seen, and was not acknowledged by setting this back."""

    def __post_init__(self) -> None:
        self._last = time.monotonic()

    def now(self) -> float:
        """Seconds, of which those are left out in which it was not asked for long."""
        seen = time.monotonic()
        gap, self._last = seen - self._last, seen
        if gap > AWAY:
            self.away = True
            self._lost += gap
        return seen - self._lost
