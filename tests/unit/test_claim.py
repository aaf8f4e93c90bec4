"""The claim: one value, one JSON form, every field in it and every wrong value shown."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from aggverify.errors import InputError
from aggverify.execution.budget import Budget
from aggverify.execution.claim import NONLINEAR, Claim
from aggverify.execution.subject import Subject
from aggverify.oracles import Policy
from tests.hostile import document

OTHERS: dict[str, Any] = {
    "target": "other.py:f",
    "function": "f",
    "convention": "slime",
    "engine": "mean",
    "mode": "vl_norm(1/2)",
    "divisor": 3.5,
    "oracle": "mine.py",
    "terms": ("entropy", "value"),
    "offered": ("constant",),
    "policy": Policy(empty_units="exclude"),
    "claimed": frozenset({"fan-out"}),
    "without": frozenset({"gathered"}),
    "compiled": True,
    "strict": True,
    "group_size": 8,
    "max_world": 3,
    "backend": "cuda+gloo",
    "against": None,
    "seed": -1,
    "budget": Budget("thorough", 1, 2.0),
}
"""Another value than the one of the hostile document for every field that can have one."""


def full() -> Claim:
    return Claim.from_json(document()["claim"])


FIELDS = {f.name for f in fields(Claim)}


def test_every_field_has_another_value() -> None:
    assert set(OTHERS) | {"adapter"} == FIELDS  # which goes with one convention only


@pytest.mark.parametrize("name", ["", *OTHERS])
def test_both_ways_exactly(name: str) -> None:
    claim = replace(full(), **({name: OTHERS[name]} if name else {}))
    text = json.dumps(claim.to_json())
    again = Claim.from_json(json.loads(text))
    assert again == claim
    assert json.dumps(again.to_json()) == text
    assert not name or again != full()


@pytest.mark.parametrize("mode", [None, NONLINEAR, "token_mean", "length_weighted(0.5)"])
def test_every_kind_of_mode(mode: str | None) -> None:
    claim = Claim.from_json(replace(full(), mode=mode, oracle=None, against=None).to_json())
    subject = Subject.of(claim)
    assert claim.mode == mode
    assert subject.nonlinear == (mode == NONLINEAR)
    assert subject.mode == (None if mode == NONLINEAR else mode)


def budget(**changed: Any) -> dict[str, Any]:
    """A claim's budget with something in it changed."""
    usual = {"profile": "ci", "max_examples": None, "max_time": None, "step": "usual"}
    return {"budget": {**usual, **changed}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "the claim.schema must be 1, got 2"),
        ({"target": 1}, "target must be text, got 1"),
        ({"function": None}, "function must be text, got None"),
        ({"convention": "slim"}, "did you mean 'slime'"),
        ({"engine": "means"}, "did you mean 'mean'"),
        ({"mode": 3}, "mode must be text, got 3"),
        ({"mode": "token_men"}, "did you mean 'token_mean'"),
        ({"divisor": True}, "claim.divisor must be a number, got True"),
        ({"divisor": "2"}, "claim.divisor must be a number, got '2'"),
        ({"divisor": float("nan")}, "divisor nan cannot be used: .* L must lie between"),
        ({"divisor": 10**400}, "divisor 1000.* cannot be used"),
        ({"oracle": ["x"]}, "oracle must be text, got"),
        ({"adapter": "verl"}, "adapter must be a Python file, got 'verl'"),
        ({"adapter": "verl.py"}, "an adapter goes with the convention 'adapter' and no other"),
        ({"convention": "adapter"}, "an adapter goes with the convention 'adapter' and no other"),
        ({"convention": "verl.py"}, "convention must be a name, got 'verl.py'"),
        ({"terms": "kl"}, "claim.terms must be a list, got 'kl'"),
        ({"offered": [1]}, r"claim.offered\[0\] must be text, got 1"),
        ({"policy": [1]}, "policy must be an object, got"),
        ({"policy": {"denominators": "often"}}, "policy cannot be used: .*often"),
        ({"policy": {"denominator": "final"}}, "policy cannot be used: .*denominator"),
        ({"claimed": ["fanout"]}, "did you mean 'fan-out'"),
        ({"group_size": 65}, "group_size must be an integer from 1 to 64, got 65"),
        ({"group_size": True}, "group_size must be an integer from 1 to 64, got True"),
        ({"max_world": None}, "max_world must be an integer from 1 to 8, got None"),
        ({"max_world": 9}, "max_world must be an integer from 1 to 8, got 9"),
        ({"against": "old.py"}, "claim.against must be an object, got 'old.py'"),
        ({"seed": 1.0}, "seed must be an integer, got 1.0"),
        ({"budget": {"profile": "ci"}}, "claim.budget lacks max_examples, max_time, step"),
        (budget(profile="slow"), "profile 'slow'"),
        (budget(max_examples=0), "between 1 and 1000000000, got 0"),
        (budget(max_time=-1), "positive number"),
        (budget(step="prod"), "step 'prod'"),
        ({"wrold": 8}, "unknown key of the claim 'wrold'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_shown(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Claim.from_json(full().to_json() | changes)


def test_reading_a_claim_imports_nothing() -> None:
    claim = Claim.from_json(full().to_json() | {"engine": "antigravity:ENGINE"})
    assert claim.engine == "antigravity:ENGINE"
    assert "antigravity" not in sys.modules


def test_another_path_has_no_other_path() -> None:
    with pytest.raises(InputError, match="no other path itself"):
        Claim.from_json(full().to_json() | {"against": full().to_json()})


def test_cases_of_before_there_were_backends_are_of_the_usual_one() -> None:
    data = full().to_json()
    del data["backend"]
    assert Claim.from_json(data) == full()
    assert full().backend == "gloo"


@pytest.mark.parametrize("key", sorted(FIELDS - {"backend"}))
def test_a_missing_key_is_named(key: str) -> None:
    data = full().to_json()
    del data[key]
    with pytest.raises(InputError, match=f"the claim lacks {key}$"):
        Claim.from_json(data)
