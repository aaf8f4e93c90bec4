"""Every time limit of a run, in one place: seconds of a rank's processor time, or of the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aggverify.world import GLOO, Options, backend

# -- one case -------------------------------------------------------------------------------

CPU_SECONDS, CPU_SECONDS_AFTER = 4.0, 1.0
"""A rank's processor time for a case before it counts as running away, and once one has: the rest
are sought out to make it small, and the smallest is confirmed with the full time. Usual cases take
a thousandth of a second."""
HANDLER = "aggverify.trainer.training:Trainer"
"""What runs a case's steps on every rank."""
LIMITS = Options(
    cpu_seconds=CPU_SECONDS, cpu_seconds_after=CPU_SECONDS_AFTER, preload=HANDLER.partition(":")[0]
)
COMPILED = {
    "cpu_seconds": 300,
    "cpu_seconds_after": 300,
    "memory": 1 << 33,
    "import_seconds": 300,
    "silence": 600,
    "silence_after": 600,
}
"""Options of ranks that compile: the first step of each shape takes from seconds to minutes."""
FAR: Mapping[str, Any] = {
    "cpu_seconds": 60,
    "cpu_seconds_after": 60,
    "memory": 1 << 36,
    "silence": 30,
    "silence_after": 5,
    "import_memory": 1 << 36,
}
"""Options of ranks on a device other than the processor: the first collective and kernel of each
kind take seconds, host threads spin while they wait, so that only a rank without progress is known
to be blocked."""
LAUNCHED = {
    "cpu_seconds": 60,
    "cpu_seconds_after": 60,
    "memory": 1 << 34,
    "silence": 600,
    "silence_after": 600,
}
"""Options of ranks that are launched: each imports torch, and has as many threads as it likes."""
LARGE_STEP = 100_000
"""Response tokens from which a case has a dispatch, and its own processor time, to itself."""
SECONDS_PER_TOKEN = 4e-6
"""Processor time a rank may take for each token of a step larger than that."""


MANY_CALLS = 500
"""Calls of the reducer on a rank from which a case has a longer processor time."""
SECONDS_PER_CALL = 2e-3
"""Processor time a rank may take for each call beyond that: a step is put together for each."""
TIMES_ITS_OWN = 50
"""How much longer a call may take than the slowest so far that came to its end: a slow reducer on a
slow hour of the machine does not run away."""


class RankKind(NamedTuple):
    """What two claims on the same files must share for the same ranks to run the steps of both."""

    compiled: bool = False
    backend: str = GLOO.name

    @property
    def options(self) -> Mapping[str, Any]:
        """Of a pool's template, other than its usual ones."""
        joined = backend(self.backend)
        far = {**FAR, "backend": joined} if joined.is_far else {}
        return {**far, **(COMPILED if self.compiled else {})}


USUAL = RankKind()


def cpu_seconds(tokens: int, calls: int, asked: float | None, slowest: float) -> float | None:
    """Return the processor time of a case of so many tokens, and calls on a rank.

    None for the pool's usual. ``slowest``: seconds of the slowest call that came to its end.
    """
    own = TIMES_ITS_OWN * slowest * calls
    if own > CPU_SECONDS_AFTER:
        asked = max(asked or CPU_SECONDS, own)
    more = SECONDS_PER_TOKEN * tokens if tokens > LARGE_STEP else 0.0
    more += SECONDS_PER_CALL * max(0, calls - MANY_CALLS)
    return (asked or CPU_SECONDS) + more if more else asked


# -- a failure that may be no more than slowness (see retry_policy.py) ------------------------

SECOND_LOOK, LOADING_SECONDS = 6.0, 60.0
"""Processor time that the first case to run away is given before it is believed, if it is also the
first its ranks run; the longer if they are importing or compiling, which may happen later too."""
QUICK_START = 0.3
"""Processor time of first cases that leaves no doubt about what runs away: usual ones take a tenth
of that, on a busy machine."""
MOST_ENDS, MOST_OUTLIVED = 3, 20
"""How often a rank that somebody else may have ended is run again before the reducer is taken to do
it; and how often in a run others may have done it before nothing can be judged."""
MOST_WAITS, WAIT_SECONDS = 20, 0.1
"""How often waiting for an import or a compiler is not believed to be for good, and for how much
longer each time the machine is left to the process that is waited for."""
