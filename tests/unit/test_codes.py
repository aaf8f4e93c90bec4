"""Codes are data: what treats a finding asks for traits, and a person's own code has them too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aggverify
from aggverify.codes import CODES, Code, Effect, Explanation, Symptom, code_of_failure, registered
from aggverify.codes.catalogue import read, stored
from aggverify.codes.explanations import explanation
from aggverify.diagnosis.bugs import BUGS
from aggverify.errors import InputError
from aggverify.run.outcome.verdict import Exit, exit_code
from tests.verdicts import report, subject, verdict, written

NAMING = ("coverage_observer.py", "branch_coverage.py", "properties.py")
HAZARD = Code("AGV901", "Right only for finite values", effect=Effect.HAZARD)
ENTRY = {"title": "Is wrong", "meaning": "It is wrong.", "fix": "Mend it."}
EXAMPLE = {"mutant": "a.b", "reducer": "", "check": "c", "mode": "token_mean"}


def test_no_module_outside_the_registry_treats_a_code_by_its_name() -> None:
    """A check or a warning may state the code it produces, nothing else may state one."""
    root = Path(aggverify.__file__).parent
    treated = re.compile(r'(in|==|!=) *[({\[]?"AGV|frozenset\(.*"AGV|codes *= *\(')
    for file in root.rglob("*.py"):
        inside = file.relative_to(root)
        if inside.parts[0] == "codes":
            continue
        text = file.read_text(encoding="utf-8")
        assert not treated.search(text), inside
        if inside.parts[0] != "checks" and inside.name not in NAMING:
            assert '"AGV' not in text, inside


@pytest.mark.parametrize("known", CODES.values(), ids=CODES)
def test_what_ends_a_run_or_costs_a_world_is_high(known: Code) -> None:
    if known.ends_the_run or known.costs_a_world or known.unsteady:
        assert known.severity == "high"
        assert known.effect is Effect.FAILS


@pytest.mark.parametrize(
    "kind", ["exception", "blocked", "died", "diverged", "disagree", "runaway", "breach"]
)
def test_every_failure_has_one_code(kind: str) -> None:
    assert [c for c in CODES.values() if c.failure == kind] == [code_of_failure(kind)]


def test_every_symptom_of_a_known_bug_is_a_codes() -> None:
    named = {s for s in Symptom for bug in BUGS if any(re.fullmatch(name, s) for name in bug.signs)}
    assert len(named) >= 20
    assert named <= {c.symptom for c in CODES.values()}


def test_a_hazard_is_no_failure_and_a_failure_beside_it_is() -> None:
    with registered(HAZARD):
        hazard, failure = (
            replace(verdict(), reports=(report(subject(), code=code),))
            for code in ("AGV901", "AGV101")
        )
        assert hazard.exit is Exit.CONFORMS
        assert written(hazard).verdicts[0].findings[0].effect == "hazard"
        assert written(failure).verdicts[0].findings[0].effect == "fails"
        assert failure.exit is Exit.FINDINGS
        assert exit_code([hazard, failure]) is Exit.FINDINGS
        assert exit_code([hazard, hazard]) is Exit.CONFORMS


def test_an_own_code_is_there_as_long_as_it_is_registered() -> None:
    mine = Code("AGV902", "Mine", explanation=Explanation("What it means.", "What mends it."))
    with registered(mine):
        assert CODES["AGV902"] is mine
        assert explanation(mine) == mine.explanation
        with registered(mine):
            pass
        assert "AGV902" in CODES
    assert "AGV902" not in CODES


@pytest.mark.parametrize("name", ["AGV101", "AGV600", "agv901", "MINE", "AGV9001"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="AGV900 to AGV999"), registered(Code(name, "Mine")):
        pass


def test_two_meanings_of_one_code_are_refused() -> None:
    with (
        registered(HAZARD),
        pytest.raises(InputError, match="AGV901 is in use already: 'Right only"),
        registered(Code("AGV901", "Another")),
    ):
        pass
    assert "AGV901" not in CODES


def test_an_entry_has_the_traits_and_the_texts_of_a_code() -> None:
    more = {"severity": "medium", "spoils": ["collectives"], "symptom": "blocked", "quiet": True}
    code, texts = read("AGV701", ENTRY | more | {"example": EXAMPLE | {"losses": [1.0]}})
    assert code == Code(
        *("AGV701", "Is wrong", "medium"),
        spoils=("collectives",),
        symptom=Symptom.BLOCKED,
        quiet=True,
    )
    assert (texts.meaning, texts.fix, texts.bugs) == ("It is wrong.", "Mend it.", ())
    assert texts.example is not None and texts.example.losses == (1.0,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"titel": "y"}, "unknown key of AGV701 'titel'; did you mean 'title'"),
        ({"meanin": "y"}, "unknown key of AGV701 'meanin'; did you mean 'meaning'"),
        ({"code": "AGV702"}, "unknown key of AGV701 'code'"),
        ({"title": 1}, "AGV701.title must be text, got 1"),
        ({"severity": "low"}, "AGV701.severity must be 'high' or 'medium' or 'warning', got 'low'"),
        ({"effect": "fail"}, "AGV701.effect must be 'fails' or 'hazard' or .*, got 'fail'"),
        ({"diagnosed": "values"}, "AGV701.diagnosed must be 'weights' or .*, got 'values'"),
        ({"symptom": "block"}, "AGV701.symptom must be .* or 'blocked' or .*, got 'block'"),
        ({"splits": "yes"}, "AGV701.splits must be true or false, got 'yes'"),
        ({"spoils": [1]}, r"AGV701.spoils\[0\] must be text, got 1"),
        ({"fix": ["x"]}, r"AGV701.fix must be text, got \['x'\]"),
        ({"example": {"mutant": "a.b"}}, "AGV701.example lacks reducer, check, mode"),
        ({"example": EXAMPLE | {"divisor": "2"}}, "AGV701.example.divisor must be a number"),
        ({"more": [EXAMPLE | {"stepp": ""}]}, r"unknown key of AGV701.more\[0\] 'stepp'"),
    ],
)
def test_what_is_wrong_in_an_entry_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read("AGV701", ENTRY | changes)


@pytest.mark.parametrize("key", ENTRY)
def test_what_an_entry_lacks_is_named(key: str) -> None:
    with pytest.raises(InputError, match=f"AGV701 lacks {key}"):
        read("AGV701", {k: v for k, v in ENTRY.items() if k != key})


def test_what_is_no_entry_is_refused() -> None:
    with pytest.raises(InputError, match="AGV701 must be a table, got 3"):
        read("AGV701", 3)


def test_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    text = "title = 'Is wrong'\nmeaning = 'It is wrong.'\nfix = 'Mend it.'\n"
    (tmp_path / "8.toml").write_text(f"[AGV801]\n{text}")
    (tmp_path / "7.toml").write_text(f"[AGV702]\n{text}[AGV701]\n{text}")
    (tmp_path / "notes.md").write_text("no entries")
    assert list(stored(tmp_path)) == ["AGV702", "AGV701", "AGV801"]
    (tmp_path / "9.toml").write_text(f"[AGV702]\n{text}")
    with pytest.raises(InputError, match=r"9\.toml: already in another file: AGV702"):
        stored(tmp_path)
