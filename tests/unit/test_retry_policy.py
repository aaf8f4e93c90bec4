"""Which failures are looked into again, how often, and with how much time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.errors import NotJudged
from aggverify.execution import limits
from aggverify.execution.limits import (
    LOADING_SECONDS,
    MOST_ENDS,
    MOST_OUTLIVED,
    MOST_WAITS,
    SECOND_LOOK,
)
from aggverify.execution.retry_policy import RetryPolicy, doubtful
from aggverify.world import Fault, Frame, Stack
from aggverify.world.faults import FaultKind
from aggverify.world.frames import owner


def doing(kind: FaultKind, file: str, *, first: bool = False) -> Fault:
    stack = Stack("0x1", (Frame(file, 241, "f", owner(file)),))
    return Fault(kind, 0, "computes", stacks={0: (stack,)}, first=first)


IMPORT = "<frozen importlib._bootstrap>"
WAITS = doing("blocked", IMPORT)
COMPUTES = doing("runaway", "r.py")
COMPUTES_FIRST = doing("runaway", "r.py", first=True)
IMPORTS = doing("runaway", IMPORT)


def never(seconds: float) -> bool:
    raise AssertionError(f"run again with {seconds} s")


def test_what_is_doubtful() -> None:
    assert all(map(doubtful, (WAITS, COMPUTES, COMPUTES_FIRST, IMPORTS)))
    assert doubtful(doing("blocked", "/env/torch/_inductor/compile_fx.py"))
    assert not doubtful(doing("blocked", "r.py"))
    assert not doubtful(doing("died", IMPORT))
    assert not doubtful(None)


def test_waiting_for_an_import_is_not_believed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 0)
    mine = RetryPolicy()
    said = [mine.again(WAITS, never) for _ in range(MOST_WAITS + 2)]
    assert said == [True] * MOST_WAITS + [False] * 2
    assert mine.seconds is None


@pytest.mark.parametrize(
    ("failure", "given", "later"),
    [
        (COMPUTES_FIRST, SECOND_LOOK, 2 * SECOND_LOOK),
        (IMPORTS, LOADING_SECONDS, LOADING_SECONDS),
    ],
)
def test_what_comes_back_gets_more_time(failure: Fault, given: float, later: float) -> None:
    mine, asked = RetryPolicy(), []

    def comes_back(seconds: float) -> bool:
        asked.append(seconds)
        return False

    assert mine.again(failure, comes_back)
    assert (asked, mine.seconds) == ([given], later)
    assert not mine.again(failure, never)


def test_what_runs_away_is_looked_into_once_of_each_kind() -> None:
    mine = RetryPolicy()
    assert not mine.again(COMPUTES_FIRST, lambda _: True)
    assert not mine.again(COMPUTES_FIRST, never)
    assert not mine.again(IMPORTS, lambda _: True)
    assert not mine.again(IMPORTS, never)
    assert mine.seconds is None


def test_ranks_that_were_warm_are_believed() -> None:
    mine = RetryPolicy()
    assert not mine.again(COMPUTES, never)
    assert not mine.again(COMPUTES_FIRST, never)


def test_candidates_known_to_start_quickly_are_believed() -> None:
    mine = RetryPolicy()
    mine.seen(0.02)
    mine.seen(0.0)
    assert not mine.again(COMPUTES_FIRST, never)
    slow = RetryPolicy()
    slow.seen(1.9)
    slow.seen(0.02)
    assert slow.again(COMPUTES_FIRST, lambda _: False)


KILLED = Fault("died", 1, "", 2, exit_status=-9)


@pytest.mark.parametrize(
    ("fault", "by"),
    [
        (KILLED, "SIGKILL"),
        (Fault("died", 0, "", exit_status=-15), "SIGTERM"),
        (Fault("died", None, ""), "an unknown signal"),
        (Fault("died", 0, "", exit_status=-11), ""),
        (Fault("died", 0, "", exit_status=9), ""),
        (Fault("died", 0, ""), ""),
        (COMPUTES, ""),
    ],
)
def test_by_what_somebody_else_may_have_ended_a_rank(fault: Fault, by: str) -> None:
    assert fault.ended == by


def test_what_comes_back_every_time_is_the_reducers() -> None:
    patience, runs = RetryPolicy(), []
    assert not patience.outlives(KILLED, lambda: runs.append(1) or KILLED)
    assert len(runs) == MOST_ENDS
    # Known from then on, so that it is made small quickly, until it is to be confirmed.
    assert not patience.outlives(KILLED, lambda: pytest.fail("run again"))
    patience.doubt()
    assert patience.outlives(KILLED, lambda: None)


def test_what_gets_through_once_was_ended_from_outside() -> None:
    patience, outcomes = RetryPolicy(), iter([KILLED, KILLED, None] * (MOST_OUTLIVED + 1))
    for _ in range(MOST_OUTLIVED):
        assert patience.outlives(KILLED, lambda: next(outcomes))
    with pytest.raises(NotJudged, match="ended by SIGKILL from outside, 21 times"):
        patience.outlives(KILLED, lambda: next(outcomes))


def test_what_the_kernel_has_done_is_not_the_reducers() -> None:
    ended = replace(KILLED, out_of_memory="oom_kill 0 -> 1 in /f")
    with pytest.raises(
        NotJudged, match="by SIGKILL for lack of memory, 4 times in a row; the kernel reports: oom"
    ):
        RetryPolicy().outlives(KILLED, lambda: ended)
