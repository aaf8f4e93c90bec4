"""Stored cases: written, read back, refused by name when something in them is not as it must be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggverify.errors import InputError
from aggverify.oracles import Policy
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from tests.hostile import document


def stored(**changes: Any) -> StoredCase:
    """The hostile document's case; changes of the claim go into its claim."""
    known = StoredCase.from_json(document())
    mine = {key: changes.pop(key) for key in ("check", "code", "trust_formula") if key in changes}
    return replace(known, claim=replace(known.claim, **changes), **mine)


@pytest.mark.parametrize("changes", [{}, {"oracle": None, "divisor": None, "mode": None}])
def test_what_is_written_is_read_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    case = stored(policy=Policy(denominators="post_rejection"), **changes)
    path = store.write(case, tmp_path)
    assert path == tmp_path / "cases" / f"{case.id}.json"
    assert path.read_text().endswith("}\n")
    for name in (case.id, str(path)):
        again = store.read(name, tmp_path)
        assert again.to_json() == case.to_json()
        assert (again.claim, again.trust_formula) == (case.claim, case.trust_formula)


def test_the_id_is_of_what_is_run_not_of_whose_it_is() -> None:
    first = stored()
    assert len(first.id) == 6
    same = stored(target="other.py", function="other", code="AGV202", seed=9, max_world=1)
    assert first.id == same.id
    others = [{"oracle": "mine.py"}, {"oracle": None}, {"divisor": 3.0}, {"mode": "sample_mean"},
              {"engine": "mean"}, {"check": "padding_changes_nothing"}, {"policy": Policy()},
              {"group_size": None}, {"claimed": frozenset()}, {"offered": ()},
              {"trust_formula": True}]  # fmt: skip
    assert len({first.id, *(stored(**changes).id for changes in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 1}, "schema must be 2, got 1"),
        ({"check": 1}, "check must be text, got 1"),
        ({"check": "weights_are_the_mode"}, "weights_are_the_modes"),
        ({"code": None}, "code must be text, got None"),
        ({"trust_formula": 1}, "trust_formula must be a bool, got 1"),
        ({"claim": {}}, "the claim's schema must be 1, got None"),
        ({"claim": "x"}, "the claim is a JSON object, got 'x'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_shown(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StoredCase.from_json(document() | changes)


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_no_object_at_all(data: object) -> None:
    with pytest.raises(InputError, match=f"JSON object, got {type(data).__name__}"):
        StoredCase.from_json(data)


@pytest.mark.parametrize("key", sorted(set(document()) - {"schema"}))
def test_a_missing_key_is_named(key: str) -> None:
    data = document()
    del data[key]
    with pytest.raises(InputError, match=f"the stored case lacks {key}$"):
        StoredCase.from_json(data)


def test_a_case_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no case 'abc': .*abc\.json does not exist \(none is"):
        store.read("abc", tmp_path)
    known = store.write(stored(), tmp_path).stem
    with pytest.raises(InputError, match=rf"stored here: {known}\)"):
        store.read("abc", tmp_path)
    (tmp_path / "cases" / "long.json").write_text(json.dumps(document()) + " " * (1 << 20))
    with pytest.raises(InputError, match=r"long\.json"):
        store.read("long", tmp_path)
