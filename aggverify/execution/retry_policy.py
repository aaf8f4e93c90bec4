"""Slow ranks are distinguished from ranks that are stuck or run away.

Ranks that were ended from outside are distinguished from ranks that end themselves.

Code may import, compile or build tables at its first call, in every fresh rank again, and
compilers wait for each other. A failure that may be no more than that is not believed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aggverify.errors import NotJudged
from aggverify.execution import limits
from aggverify.world import Fault

_LOADING = ("<frozen importlib._bootstrap", "/torch/_dynamo/", "/torch/_inductor/", "/triton/")
"""In the name of a file that is at work in a rank that is importing or compiling."""


def doubtful(failure: Fault | None) -> bool:
    """Whether ranks may be slow only: they ran for long, or waited to import or compile."""
    if failure is None:
        return False
    return failure.kind == "runaway" or (failure.kind == "blocked" and _loading(failure))


def _loading(failure: Fault) -> bool:
    stacks = (stack for threads in failure.stacks.values() for stack in threads)
    files = {frame.file for stack in stacks for frame in stack.frames}
    return any(mark in file for mark in _LOADING for file in files)


@dataclass(slots=True)
class RetryPolicy:
    """What is known of a candidate so far: how slow it is, and whether it ends its ranks itself.

    ``seconds``: processor time for each case from now on, None while there is no reason for more
    than usual.
    """

    seconds: float | None = None
    outlived: list[str] = field(default_factory=list)
    """By what ranks were ended from outside."""
    _first_seconds: float = 0.0
    _tried: set[float] = field(default_factory=set)
    """Longer times that were considered already for a case which ran away."""
    _waits: int = 0
    _ends_itself: bool = False

    def seen(self, first_seconds: float) -> None:
        """Note what the first case of a rank took; 0.0 where it was not the first."""
        self._first_seconds = max(self._first_seconds, first_seconds)

    def outlives(self, failure: Fault, ends: Callable[[], Fault | None]) -> bool:
        """Whether ranks were ended from outside, so that their cases should be run again.

        ``ends`` runs one of them by itself, and returns how that failed. One that is ended every
        time ends itself, and so do others from then on; raises NotJudged where the kernel reports
        that it has done it, or somebody does it all the time.
        """
        if self._ends_itself:
            return False
        kernel_report = failure.out_of_memory
        for _ in range(limits.MOST_ENDS):
            again = ends()
            if again is None or again.ended != failure.ended:
                self.outlived.append(failure.ended)
                break
            kernel_report = again.out_of_memory or kernel_report
        else:
            if kernel_report:
                times = limits.MOST_ENDS + 1
                raise NotJudged(
                    f"ranks are ended by {failure.ended} for lack of memory, {times} times in a "
                    f"row; the kernel reports: {kernel_report}"
                )
            self._ends_itself = True
            return False
        if (times := len(self.outlived)) > limits.MOST_OUTLIVED:
            raise NotJudged(f"ranks were ended by {failure.ended} from outside, {times} times")
        return True

    def doubt(self) -> None:
        """Forget that the reducer was taken to end its ranks itself."""
        self._ends_itself = False

    def again(self, failure: Fault, runs_away: Callable[[float], bool]) -> bool:
        """Whether a case with a doubtful failure, and others like it, should be run again.

        ``runs_away`` runs it with so many seconds. Each kind of doubt is looked into once, so that
        what does run away is made small quickly.
        """
        if failure.kind == "blocked":
            self._waits += 1
            if self._waits > limits.MOST_WAITS:
                return False
            time.sleep(limits.WAIT_SECONDS * self._waits)
            return True
        loading = _loading(failure)
        seconds = limits.LOADING_SECONDS if loading else limits.SECOND_LOOK
        if self.seconds is not None or seconds in self._tried:
            return False
        self._tried.add(seconds)
        starts_quickly = 0.0 < self._first_seconds < limits.QUICK_START
        maybe_slow = loading or (failure.first and not starts_quickly)
        if not maybe_slow or runs_away(seconds):
            return False
        self.seconds = seconds if loading else 2 * seconds
        return True
