"""What goes to the ranks and what comes back: exactly as it was, or refused."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from msgspec.structs import replace

from aggverify.errors import InputError
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.answer import Answer
from aggverify.trainer.assignment import Assignment

CASE = Case(parse_step("1/01 2/1"), Layout.trivial(2), (math.inf, -0.0, 1 / 3))
PLAIN = Assignment(CASE, "reduce", "native", "sum", "token_mean", None)
FULL = Assignment(
    CASE,
    "f",
    "slime",
    "my:ENGINE",
    None,
    0.1,
    False,
    (CASE, CASE.trivial),
    True,
    True,
    True,
    3,
    4,
    "waited for",
    0.5,
    "autocast",
    record=True,
)
ANSWER = Answer(
    losses=(0.1, -0.0, math.inf),
    lines=(3, 4, 12),
    counts=(3, 0, 1),
    logs=(None, "the log must be a mapping", (("loss", (0.1,)), ("pair", (-math.inf, 2.0)))),
    checksum=2**32 - 1,
    changed=("losses: was 1, is 2",),
    refusals=(("tokens", None), ("groups", "ValueError: no")),
    first_seconds=0.25,
)


def sent(data: dict[str, Any]) -> dict[str, Any]:
    """As it is read at the other end."""
    read: dict[str, Any] = json.loads(json.dumps(data))
    return read


@pytest.mark.parametrize("wanted", [PLAIN, FULL, replace(PLAIN, term=0, terms=1)])
def test_an_assignment_arrives_as_it_was(wanted: Assignment) -> None:
    assert Assignment.from_json(sent(wanted.to_json())) == wanted


def test_a_plain_assignment_says_no_more_than_it_must() -> None:
    names = {"case", "function", "convention", "engine", "mode", "divisor"}
    assert PLAIN.to_json().keys() == names


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"watch": 1}, "the assignment.watch must be true or false, got 1"),
        ({"terms": True}, "the assignment.terms must be an integer, got True"),
        ({"mode": 3}, "the assignment.mode must be text, got 3"),
        ({"divisor": "2"}, "the assignment.divisor must be a number, got '2'"),
        ({"elsewhere": -1}, "the assignment.elsewhere must be an integer from 0 to 1099511627776"),
        ({"virtual": [0, "1"]}, r"the assignment.virtual\[1\] must be an integer, got '1'"),
        ({"case": 3}, "the assignment.case must be an object, got 3"),
        ({"before": 3}, "the assignment.before must be a list, got 3"),
        ({"wacth": True}, "did you mean 'watch'"),
    ],
)
def test_what_is_no_assignment(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Assignment.from_json(PLAIN.to_json() | change)


def test_an_assignment_is_whole() -> None:
    data = PLAIN.to_json()
    del data["engine"], data["case"]
    with pytest.raises(InputError, match="the assignment lacks case, engine"):
        Assignment.from_json(data)


@pytest.mark.parametrize("answer", [Answer(), ANSWER])
def test_an_answer_arrives_as_it_was(answer: Answer) -> None:
    read = Answer.from_json(sent(answer.to_json()))
    assert read == answer
    # Equal, yet not the same: -0.0 and 0.0.
    assert [x.hex() for x in read.losses] == [x.hex() for x in answer.losses]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"losses": ["0.5"]}, "losses[0] must be a double in hex, got '0.5'"),
        ({"losses": ["0x1p+9999"]}, "losses[0] must be a double in hex, got '0x1p+9999'"),
        ({"counts": [1, True]}, "counts[1] must be an integer, got True"),
        ({"logs": 3}, "logs must be a list, got 3"),
        ({"logs": [None, 3]}, "logs[1] must be a list or text, got 3"),
        ({"logs": [[["loss"]]]}, "logs[0][0] must be a list of 2, got ['loss']"),
        ({"logs": [[["loss", []]]]}, "logs[0][0][1] must be a list of 1 to 2, got []"),
        ({"logs": [[["loss", ["x"]]]]}, "logs[0][0][1][0] must be a double in hex, got 'x'"),
        ({"clips": [["nan"]]}, "clips[0] must be a list of 2, got ['nan']"),
        ({"refusals": [["a", 3]]}, "refusals[0][1] must be text, got 3"),
        ({"first_seconds": -1}, "first_seconds must be a number from 0 to 1000000000, got -1"),
        ({"call_seconds": math.nan}, "call_seconds must be a number from 0 to 1000000000, got nan"),
        ({"peak_bytes": -1}, "peak_bytes must be an integer from 0 to 9223372036854775807, got -1"),
        ({"compiles": 1}, "compiles must be true or false, got 1"),
    ],
)
def test_what_is_no_answer(change: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"the answer.{wrong}")):
        Answer.from_json(ANSWER.to_json() | change)


def test_an_answer_with_more_in_it_is_none() -> None:
    with pytest.raises(InputError, match="unknown key of the answer 'state_changes'"):
        Answer.from_json(ANSWER.to_json() | {"state_changes": []})


def test_an_answer_without_losses_is_none() -> None:
    with pytest.raises(InputError, match="the answer lacks losses"):
        Answer.from_json({"counts": [1]})
