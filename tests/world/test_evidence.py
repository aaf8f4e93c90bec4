"""A fault's evidence as text: who waits where, in which line, and the last words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from aggverify.errors import InputError
from aggverify.world import (
    Collective,
    Fault,
    Frame,
    Raised,
    Stack,
    Template,
    answers,
    evidence,
    stacks,
)
from aggverify.world.candidate_errors import Breach, raised
from aggverify.world.stacks import parse
from aggverify.world.wire import WireError
from tests import hostile, schemas
from tests.world.conftest import job

WAITS = Collective("all_reduce", "0", (0, 1, 2), "float32", 1, "SUM")
ASKED = """Thread 0x00001 (most recent call first):
  File "/home/me/r.py", line 3 in f
  File "{ours}", line 80 in live
  File "<frozen runpy>", line 88 in _run_code

Current thread 0x00002 (most recent call first):
  File "/home/me/with "quotes".py", line 9 in <lambda>
"""


def frame(line: int, function: str) -> Frame:
    return Frame("r.py", line, function, "candidate")


def test_ranks_that_do_the_same_are_told_together() -> None:
    wakes, asleep = (Stack("0x1", (frame(3, "f"),)),), (Stack("0x1", (frame(9, "g"),)),)
    fault = Fault(
        "blocked", 1, "", stacks={0: wakes, 1: asleep, 2: wakes}, inside={0: WAITS, 2: WAITS}
    )
    assert evidence(fault) == (
        "ranks 0, 2 wait in all_reduce float32[1] SUM of ranks 0,1,2:\n"
        '  File "r.py", line 3, in f\n\n'
        'rank 1, outside any collective:\n  File "r.py", line 9, in g'
    )


def test_a_dump_is_read_into_threads_and_frames() -> None:
    crash, threads = parse(ASKED.format(ours=stacks.__file__))
    assert (crash, [stack.thread for stack in threads]) == ("", ["0x00001", "0x00002"])
    assert [(f.line, f.owner) for f in threads[0].frames] == [
        (3, "candidate"), (80, "ours"), (88, "python")
    ]  # fmt: skip
    assert threads[1].frames == (Frame('/home/me/with "quotes".py', 9, "<lambda>", "candidate"),)


def test_threads_have_headings_and_no_frames_of_ours() -> None:
    _, threads = parse(ASKED.format(ours=stacks.__file__))
    text = evidence(Fault("blocked", 0, "", stacks={0: threads}))
    assert text.count("Thread 0x") == 2
    assert "live" not in text
    assert "runpy" not in text


def test_the_last_words_are_set_apart() -> None:
    text = "\n".join(f"line {n}" for n in range(9)) + "\n"
    fault = Fault(
        "died", 1, "", output={0: "not asked for\n", 1: text}, exit_status=9, inside={0: WAITS}
    )
    assert evidence(fault) == "rank 1 printed last\n" + "\n".join(
        f"  | line {n}" for n in range(4, 9)
    )


def failing(value: int) -> float:
    try:
        return {}[value]  # type: ignore[no-any-return]
    except KeyError:
        return 1 / (value - value)


def test_an_exception_has_its_traceback_and_who_waits_for_it() -> None:
    with pytest.raises(ZeroDivisionError) as found:
        failing(3)
    error = raised(found.value)
    fault = Fault("exception", 1, "", 2, {1: error}, inside={0: WAITS}, output={1: "much"})
    lines = evidence(fault).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[2:7] == [
        "    return {}[value]  # type: ignore[no-any-return]",
        "           ~~^^^^^^^".replace("~", "^"),
        "KeyError: 3",
        "",
        "During handling of the above exception, another exception occurred:",
    ]
    assert "    return 1 / (value - value)" in lines
    assert lines[-3:] == [
        "ZeroDivisionError: division by zero",
        "",
        "rank 0 waits in all_reduce float32[1] SUM of ranks 0,1,2",
    ]


def test_a_breach_says_it_all_in_its_message() -> None:
    with pytest.raises(Breach) as found:
        raise Breach("returns a list")
    fault = Fault("exception", 0, "rank 0: returns a list", 1, {0: raised(found.value)})
    assert fault.breach
    assert fault.error is not None
    assert fault.error.breach == "breach"
    assert evidence(fault) == ""


def test_every_part_of_a_fault_is_in_its_json() -> None:
    error = Raised("E", "m", (Frame("r.py", 3, "f", "candidate", "x / y", (2, 3)),), "E: m", True)
    whole = Fault(
        "diverged", 1, "m", 3, {1: replace(error, before=error, caused=True, breach="b")},
        {0: (Stack("0x1", (frame(9, "g"),)),)}, {0: WAITS}, {0: (WAITS, WAITS), 1: ()},
        {0: WAITS, 1: None}, {2: "said"}, {1: ("environment",)}, -9, "Segmentation fault", True,
    )  # fmt: skip
    data = json.loads(json.dumps(whole.to_json()))
    schemas.validator(schemas.FAULT).validate(data)
    mark = ["r.py", 3, "f", "candidate", "x / y", [2, 3]]
    [[rank, found]] = data["errors"]
    assert (rank, found["frames"], found["before"]["frames"]) == (1, [mark], [mark])
    at = ["r.py", 9, "g", "candidate", "", None]
    assert data["stacks"] == [[0, [{"thread": "0x1", "frames": [at]}]]]
    assert [[rank, len(calls)] for rank, calls in data["traces"]] == [[0, 2], [1, 0]]
    assert [[rank, call and call["ranks"]] for rank, call in data["apart"]] == [
        [0, [0, 1, 2]], [1, None]
    ]  # fmt: skip
    assert (data["output"], data["changes"]) == ([[2, "said"]], [[1, ["environment"]]])
    assert Raised.from_json(found) == whole.errors[1]


ERROR = hostile.ERROR
FRAME = ERROR["frames"][0]


@pytest.mark.parametrize(("data", "wrong"), [
    (None, "the error must be an object, got None"),
    ({}, "the error lacks type, message"),
    ({**ERROR, "stated": 1}, "the error.stated must be true or false, got 1"),
    ({**ERROR, "frames": [{}]}, "the error.frames[0] must be a list of 6, got {}"),
    ({**ERROR, "frames": [[*FRAME, 3]]}, "the error.frames[0] must be a list of 6, got ['r.py'"),
    ({**ERROR, "frames": [FRAME, [*FRAME[:1], "3", *FRAME[2:]]]},
     "the error.frames[1][1] must be an integer, got '3'"),
    ({**ERROR, "frames": [[*FRAME[:3], "me", *FRAME[4:]]]},
     "the error.frames[0][3] must be 'candidate' or 'ours' or 'torch' or 'python', got 'me'"),
    ({**ERROR, "frames": [[*FRAME[:5], [0, 1 << 60]]]},
     "the error.frames[0]: no part of a line goes from 0 to 1152921504606846976"),
    ({**ERROR, "before": {**ERROR, "odd": 1}}, "unknown key of the error.before 'odd'"),
])  # fmt: skip
def test_what_is_no_error_is_refused(data: Any, wrong: str) -> None:
    with pytest.raises(InputError, match=re.escape(wrong)):
        Raised.from_json(data)


def test_an_error_of_which_a_part_is_missing_is_no_answer() -> None:
    for name in ERROR:
        less = {key: value for key, value in ERROR.items() if key != name}
        with pytest.raises(WireError, match="error"):
            answers.rank({"error": less}, started=False)


def test_errors_without_end_are_no_answer() -> None:
    error: Any = ERROR
    for _ in range(10_000):
        error = {**ERROR, "before": error}
    with pytest.raises(WireError, match="recursion"):
        answers.rank({"error": error}, started=False)


def test_state_left_changed_is_told_with_the_fault(play: Template) -> None:
    jobs = [job("raise_after_change", 2, what="torch grad mode")]
    (fault,) = play.run(jobs)
    assert isinstance(fault, Fault)
    assert fault.changes == {0: ("torch grad mode",), 1: ("torch grad mode",)}
    assert evidence(fault).endswith("\n\nranks 0, 1 had left changed: torch grad mode")


def test_a_deep_recursion_is_told_once() -> None:
    lines = ["Fatal Python error: Segmentation fault", "", *['  File "r.py", line 3 in f'] * 90]
    crash, threads = parse("\n".join([*lines, "Extension modules: a, b"]))
    assert (crash, len(threads[0].frames)) == ("Segmentation fault", 90)
    told = evidence(Fault("died", 0, "", stacks={0: threads}, crash=crash)).splitlines()
    assert told[1:] == [*lines[:2], *['  File "r.py", line 3, in f'] * 3, "  ... and again"]


@pytest.mark.parametrize("world", [2, 4])
def test_a_hang_of_real_ranks(play: Template, world: int) -> None:
    (fault,) = play.run([job("sleep", world, seconds=3600, on=[1])])
    assert isinstance(fault, Fault)
    text = evidence(fault)
    assert "in all_reduce float32[1] SUM of ranks 0,1" in text
    assert "rank 1, outside any collective:\n" in text
    assert "in sleep" in text.partition("rank 1, outside")[2]
