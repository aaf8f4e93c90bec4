"""A fault's evidence as text: who waits where, in which line, and the last words."""

from __future__ import annotations

import pytest

from aggverify.world import Fault, Template, evidence
from aggverify.world.stacks import tidy
from tests.world.conftest import job

WAITS = "all_reduce float32[1] SUM of ranks 0,1,2"


def test_ranks_that_do_the_same_are_told_together() -> None:
    stack = 'Current thread 0x00007f (most recent call first):\n  File "r.py", line 3 in f'
    asleep = 'Current thread 0x00007f (most recent call first):\n  File "r.py", line 9 in g'
    fault = Fault(
        "blocked", 1, "", stacks={0: stack, 1: asleep, 2: stack}, collectives={0: WAITS, 2: WAITS}
    )
    assert evidence(fault) == (
        f'ranks 0, 2 wait in {WAITS}:\n  File "r.py", line 3 in f\n\n'
        'rank 1, outside any collective:\n  File "r.py", line 9 in g'
    )


def test_threads_keep_their_headings() -> None:
    stack = "Thread 0x1 (most recent call first):\n  a\n\nCurrent thread 0x2 (most recent):\n  b"
    assert evidence(Fault("blocked", 0, "", stacks={0: stack})).count("hread 0x") == 2


def test_the_last_words_are_set_apart() -> None:
    text = "\n".join(f"line {n}" for n in range(9)) + "\n"
    fault = Fault(
        "died", 1, "", output={0: "not asked for\n", 1: text}, exit_status=9, collectives={0: WAITS}
    )
    assert evidence(fault) == "rank 1 printed last\n" + "\n".join(
        f"  | line {n}" for n in range(4, 9)
    )


def test_an_exception_has_its_traceback_and_who_waits_for_it() -> None:
    fault = Fault("exception", 1, "", "Traceback\n", collectives={0: WAITS}, output={1: "much"})
    assert evidence(fault) == f"Traceback\n\nrank 0 waits in {WAITS}"


def test_state_left_changed_is_told_with_the_fault(play: Template) -> None:
    jobs = [job("raise_after_change", 2, what="torch grad mode")]
    (fault,) = play.run(jobs)
    assert isinstance(fault, Fault)
    assert fault.changes == {0: ("torch grad mode",), 1: ("torch grad mode",)}
    assert evidence(fault).endswith("\n\nranks 0, 1 had left changed: torch grad mode")


def test_a_deep_recursion_is_told_once() -> None:
    lines = ["Fatal Python error: Segmentation fault", "", *['  File "r.py", line 3 in f'] * 90]
    told = tidy("\n".join([*lines, "Extension modules: a, b"])).splitlines()
    assert told == [*lines[:5], "  ... and again"]


@pytest.mark.parametrize("world", [2, 4])
def test_a_hang_of_real_ranks(play: Template, world: int) -> None:
    (fault,) = play.run([job("sleep", world, seconds=3600, on=[1])])
    assert isinstance(fault, Fault)
    text = evidence(fault)
    assert "in all_reduce float32[1] SUM of ranks 0,1" in text
    assert "rank 1, outside any collective:\n" in text
    assert "in sleep" in text.partition("rank 1, outside")[2]
