"""Which failures are looked into again, how often, and with how much time."""

from __future__ import annotations

import pytest

from aggverify.execution import limits
from aggverify.execution.limits import LOADING_SECONDS, MOST_WAITS, SECOND_LOOK
from aggverify.execution.patience import Patience, doubtful
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
    mine = Patience()
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
    mine, asked = Patience(), []

    def comes_back(seconds: float) -> bool:
        asked.append(seconds)
        return False

    assert mine.again(failure, comes_back)
    assert (asked, mine.seconds) == ([given], later)
    assert not mine.again(failure, never)


def test_what_runs_away_is_looked_into_once_of_each_kind() -> None:
    mine = Patience()
    assert not mine.again(COMPUTES_FIRST, lambda _: True)
    assert not mine.again(COMPUTES_FIRST, never)
    assert not mine.again(IMPORTS, lambda _: True)
    assert not mine.again(IMPORTS, never)
    assert mine.seconds is None


def test_ranks_that_were_warm_are_believed() -> None:
    mine = Patience()
    assert not mine.again(COMPUTES, never)
    assert not mine.again(COMPUTES_FIRST, never)


def test_candidates_known_to_start_quickly_are_believed() -> None:
    mine = Patience()
    mine.seen(0.02)
    mine.seen(0.0)
    assert not mine.again(COMPUTES_FIRST, never)
    slow = Patience()
    slow.seen(1.9)
    slow.seen(0.02)
    assert slow.again(COMPUTES_FIRST, lambda _: False)
