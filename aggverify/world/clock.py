"""A clock for time limits of other processes, which stands still while this one is away.

Where this process was stopped, or did something else, it could not have read their answers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

AWAY = 1.0
"""Seconds between two calls of ``now`` above which this process was away."""


@dataclass(slots=True)
class Clock:
    """Runs as ``time.monotonic``, as long as every turn of a loop calls ``now``."""

    _last: float = 0.0
    _lost: float = 0.0
    away: bool = False
    """Set when this process was away; the caller sets it back."""

    def __post_init__(self) -> None:
        self._last = time.monotonic()

    def now(self) -> float:
        """Return seconds, without those in which this process was away."""
        seen = time.monotonic()
        gap, self._last = seen - self._last, seen
        if gap > AWAY:
            self.away = True
            self._lost += gap
        return seen - self._lost
