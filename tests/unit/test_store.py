"""Stored cases: written, read back, refused by name when something in them is not as it must be."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggverify.checks import Finding
from aggverify.errors import InputError
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.oracles import Policy
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase, stored_case
from tests.hostile import document


def stored(**changes: Any) -> StoredCase:
    """The hostile document's case; changes of the claim go into its claim."""
    known = StoredCase.from_json(document())
    mine = {
        key: changes.pop(key)
        for key in ("check", "code", "trust_formula", "whose")
        if key in changes
    }
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


def test_the_id_is_of_the_finding() -> None:
    first = stored()
    assert len(first.id) == 6
    same = stored(target="/checkout/r.py", seed=9, max_world=1, budget=Budget("quick"))
    assert first.id == same.id, "where the project lies, or how it was searched for"
    others = [{"oracle": None, "whose": ("r.py:reduce", "mine.py")}, {"divisor": 3.0},
              {"mode": "sample_mean"}, {"engine": "mean"}, {"check": "padding_changes_nothing"},
              {"policy": Policy()}, {"group_size": None}, {"claimed": frozenset()},
              {"offered": ()}, {"trust_formula": True}, {"code": "AGV202"}, {"terms": ()},
              {"whose": ("r.py:other",)}, {"whose": ("other.py:reduce",)}]  # fmt: skip
    assert len({first.id, *(stored(**changes).id for changes in others)}) == 1 + len(others)


@pytest.fixture
def finding() -> Finding:
    return Finding("AGV101", "weights_are_the_modes", "", stored().case, None)


def claimed(target: str, **changes: Any) -> Subject:
    return Subject.of(Claim(target, "reduce", "native", "sum", "token_mean", **changes))


def test_a_reducer_is_named_from_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Finding
) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    for target in ("r.py", "./r.py:reduce", "../a/r.py", str(tmp_path / "a" / "r.py")):
        assert stored_case(claimed(target), finding).whose == ("a/r.py:reduce",), target
    assert stored_case(claimed("/x/r.py"), finding).whose == ("/x/r.py:reduce",)
    assert stored_case(claimed("pkg.mod:reduce"), finding).whose == ("pkg.mod:reduce",)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert stored_case(claimed("../r.py"), finding).whose == ("a/r.py:reduce",)


def test_findings_of_several_reducers_lie_side_by_side(tmp_path: Path, finding: Finding) -> None:
    """Four reducers with one and the same step, mode and check, and two codes for one of them."""
    several = [stored_case(claimed(f"r{n}.py"), finding) for n in range(4)]
    several.append(stored_case(claimed("r0.py"), replace(finding, code="AGV102")))
    paths = {store.write(case, tmp_path) for case in several}
    assert len(paths) == len(several)
    for case in several:
        assert store.read(case.id, tmp_path).to_json() == case.to_json()


def test_another_findings_file_is_never_overwritten(tmp_path: Path) -> None:
    first, path = stored(), tmp_path / "cases" / f"{stored().id}.json"
    other = json.dumps(stored(whose=("r.py:other",)).to_json())
    path.parent.mkdir()
    path.write_text(other)
    with pytest.raises(FileExistsError, match="another finding is stored there"):
        store.write(first, tmp_path)
    assert path.read_text() == other
    path.write_text("{}")
    assert store.write(first, tmp_path) == path, "what is no finding is in nobody's way"
    assert store.write(stored(seed=9), tmp_path) == path, "the same finding found again"
    assert store.read(first.id, tmp_path).claim.seed == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 1}, "schema must be 3, got 1"),
        ({"check": 1}, "check must be text, got 1"),
        ({"check": "weights_are_the_mode"}, "weights_are_the_modes"),
        ({"code": None}, "code must be text, got None"),
        ({"trust_formula": 1}, "stored case.trust_formula must be true or false, got 1"),
        ({"whose": "r.py"}, "stored case.whose must be a list, got 'r.py'"),
        ({"whose": [1]}, r"stored case.whose\[0\] must be text, got 1"),
        ({"claim": {}}, "the claim.schema must be 1, got None"),
        ({"claim": "x"}, "stored case.claim must be an object, got 'x'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_shown(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StoredCase.from_json(document() | changes)


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_no_object_at_all(data: object) -> None:
    message = re.escape(f"the stored case must be an object, got {data!r}")
    with pytest.raises(InputError, match=message):
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
