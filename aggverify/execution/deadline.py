"""``--max-time``: wall time of a whole command, imports and reports included."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from aggverify.errors import AggverifyError

_KEPT, _MOST_KEPT = 0.1, 2.0
"""Share of the time, and seconds at most, that is kept for a last part of the work."""


class OutOfTime(BaseException):
    """The time is over.

    No Exception, as Ctrl-C is none: nothing on the way may take it for an answer of what it runs.
    """


class TooLate(AggverifyError):
    """The time was over before there was anything to judge."""


STOPS = (KeyboardInterrupt, OutOfTime)
"""What ends the work early; what was found until then is reported all the same."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """One for a command, handed down to whatever takes its time.

    In the last fifth nothing new is looked for: what was found is confirmed and explained. In the
    second half of that fifth nothing is run any more, only reported.
    """

    seconds: float = math.inf
    began: float = field(default_factory=time.monotonic)

    @property
    def looks_until(self) -> float:
        """In seconds of ``time.monotonic``."""
        return self.began + self.seconds - 2 * self._kept

    @property
    def runs_until(self) -> float:
        """In seconds of ``time.monotonic``."""
        return self.began + self.seconds - self._kept

    @property
    def left(self) -> float:
        """Seconds for looking; none once they are over."""
        return max(0.0, self.looks_until - time.monotonic())

    def look(self) -> None:
        """Raise OutOfTime where nothing new is to be looked for."""
        if time.monotonic() > self.looks_until:
            raise OutOfTime

    def check(self) -> None:
        """Raise OutOfTime where nothing is to be run any more."""
        if time.monotonic() > self.runs_until:
            raise OutOfTime

    @property
    def _kept(self) -> float:
        return min(_KEPT * self.seconds, _MOST_KEPT) if math.isfinite(self.seconds) else 0.0


NEVER = Deadline()
