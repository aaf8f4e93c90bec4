"""Verdicts are those of the golden table, but for what ``accepted.toml`` says and why.

``python reports/verdicts.py record`` and ``keep`` make the table anew.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify import model
from aggverify.checks import CHECKS, check
from aggverify.execution.limits import LIMITS
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.conftest import ROOT
from tests.golden import ablation, documents, table
from tests.golden.rows import Row, judged, requests
from tests.golden.table import by_one_check, differs, golden, whole

REQUESTS, GOLDEN = requests(), golden()
ACCEPTED = tomllib.loads((Path(__file__).parent / "accepted.toml").read_text())["row"]
WHOLE, BY_ONE_CHECK = whole(GOLDEN), by_one_check(GOLDEN, REQUESTS)
"""Run by the thorough suite; all rows, as a whole, by the exhaustive one."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(LIMITS) as started:
        yield started


def rows() -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.thorough if name in WHOLE else pytest.mark.exhaustive)
        for name in GOLDEN
    ]


@pytest.mark.parametrize("name", rows())
def test_a_verdict_is_the_golden_one(name: str, pool: Pool) -> None:
    today = judged(REQUESTS[name], pool)
    assert differs(GOLDEN[name], today) == ACCEPTED.get(name, {}).get("differs", "")
    assert not any(found["refuted"] for found in today["findings"])


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "check"), BY_ONE_CHECK.items())
def test_one_check_alone_has_the_golden_finding(name: str, check: str, pool: Pool) -> None:
    """The first of the row, down to the size of its smallest case."""
    today = judged(replace(REQUESTS[name], only=(check,)), pool)
    assert differs(first_of(GOLDEN[name]), first_of(today)) == ""
    assert not any(found["refuted"] for found in today["findings"])


def first_of(row: Row) -> Row:
    return {**row, "findings": row["findings"][:1]}


def test_every_reducer_has_its_rows() -> None:
    assert GOLDEN.keys() == REQUESTS.keys()
    assert all(row["seconds"] > 0 for row in GOLDEN.values())


def test_what_is_accepted_is_of_a_row_and_has_a_reason() -> None:
    for name, entry in ACCEPTED.items():
        assert name in GOLDEN
        assert entry["differs"] and entry["why"]


def test_every_row_that_was_changed_has_a_reason() -> None:
    for line in map(json.loads, table.CHANGED.read_text("utf-8").splitlines()):
        assert line["row"] in GOLDEN
        assert " → " in line["differs"] and line["why"]


def test_a_row_becomes_another_one_for_a_reason_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STORED", "CHANGED"):
        monkeypatch.setattr(table, name, tmp_path / name)
    table.keep({"a": row(), "b": row()}, "ab")
    with pytest.raises(ValueError, match="1 rows differ"):
        table.keep({"a": row(), "b": row(exit=0)}, "ab")
    table.keep({"a": row(), "b": row(exit=0)}, "ab", "so it is")
    assert golden() == {"a": row(), "b": row(exit=0)}
    assert json.loads(table.CHANGED.read_text("utf-8")) == {
        "row": "b", "differs": "exit 1 → 0", "why": "so it is",
    }  # fmt: skip


def test_no_right_reducer_is_blamed() -> None:
    blamed = {name for name, row in GOLDEN.items() if name.startswith("right") and row["exit"] == 1}
    assert not blamed


def test_no_diagnosis_contradicts_its_numbers() -> None:
    assert not [
        name for name, kept in GOLDEN.items() if any(f["refuted"] for f in kept["findings"])
    ]


def row(**changed: object) -> Row:
    found = {"code": "AGV101", "dimensions": ["dp_size"], "bug": "b", "factor": "2", "size": [1, 2]}
    return {"exit": changed.pop("exit", 1), "findings": [found | changed]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""),
        ({"exit": 0}, "exit 1 → 0"),
        ({"code": "AGV102"}, "codes [['AGV101', 'dp_size']] → [['AGV102', 'dp_size']]"),
        ({"dimensions": []}, "codes [['AGV101', 'dp_size']] → [['AGV101']]"),
        ({"bug": ""}, "bug b → "),
        ({"factor": None}, "factor 2 → None"),
        ({"size": [1, 3]}, "size [1, 2] → [1, 3]"),
    ],
    ids=lambda value: next(iter(value), "equal") if isinstance(value, dict) else "",
)
def test_what_differs_is_told(changed: dict[str, object], told: str) -> None:
    assert differs(row(), row(**changed)) == told


def test_every_exit_code_and_number_of_findings_stands_in_a_row_that_runs_as_a_whole() -> None:
    rows = {n: r for n, r in table.quick(GOLDEN).items() if n.startswith(table.SAMPLED)}
    for feature in (lambda n: (n.split()[0], rows[n]["exit"]), lambda n: len(rows[n]["findings"])):
        assert {*map(feature, WHOLE)} == {*map(feature, rows)}


def test_the_sample_shows_every_code_check_and_known_bug_that_any_row_shows() -> None:
    """And every convention and engine of a mutant."""
    run = [f for name in WHOLE for f in GOLDEN[name]["findings"]]
    run += [GOLDEN[name]["findings"][0] for name in BY_ONE_CHECK]
    every = [f for row in table.quick(GOLDEN).values() for f in row["findings"]]
    for what in ("code", "check", "bug"):
        assert {f[what] for f in run} == {f[what] for f in every}, what
    mutants = {n: (r.convention, r.engine) for n, r in REQUESTS.items() if n.startswith("mutant")}
    assert {role for n, role in mutants.items() if n in WHOLE | BY_ONE_CHECK.keys()} == {
        *mutants.values()
    }
    assert not WHOLE & BY_ONE_CHECK.keys()


def test_of_rows_that_show_the_same_the_quickest_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "ALWAYS", ())
    seconds = {"wrong a 0": 9.0, "wrong b 0": 1.0, "wrong c 1": 0.5}
    rows = {name: row(check="c") | {"seconds": takes} for name, takes in seconds.items()}
    assert whole(rows) == {"wrong b 0"}
    assert by_one_check(rows, {}) == {}
    hard = rows | {"hard d 0": row(check="d") | {"seconds": 3.0}}
    assert by_one_check(hard, {}) == {"hard d 0": "d"}
    mutant = {"mutant e 0": row(check="c") | {"seconds": 5.0}}
    monkeypatch.setattr(table, "SAMPLED", ("wrong",))
    asked = {"mutant e 0": Request("e.py", engine="sum")}
    assert by_one_check(rows | mutant, asked) == {"mutant e 0": "c"}


DOCUMENTS = documents.stored()


def test_a_document_of_every_row_is_stored() -> None:
    assert {*DOCUMENTS} == {*documents.ROWS}
    assert {json.loads(made["json"])["exit"] for made in DOCUMENTS.values()} == {0, 1}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_format_of_a_stored_document_is_what_it_was(name: str) -> None:
    """Made anew by ``python reports/verdicts.py documents``."""
    of = model.from_json(json.loads(DOCUMENTS[name]["json"]))
    now = documents.written(of)
    assert now.keys() == DOCUMENTS[name].keys()
    for form, text in DOCUMENTS[name].items():
        assert now[form] == text, form


def test_what_is_left_out_is_what_found_a_reducer_first() -> None:
    first, (again, _) = ablation.blind(GOLDEN), ablation.stored()
    assert {name: check for name, (check, _) in again.items()}.items() <= first.items()


@pytest.mark.thorough
def test_what_is_skipped_is_not_judged_on_branches_either(pool: Pool) -> None:
    name = "wrong corpus.blind.configuration.settings:another_loss_in_validation 0"
    check = ablation.blind(GOLDEN)[name]
    assert ablation.without(check, REQUESTS[name], pool) != check


COSTS = {"a": (3, 9, 70), "b": (1, 3, 8), "c": (2, 4, 50)}
"""Cases, steps and lines."""


def test_the_table_counts_what_nothing_else_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {f"wrong {n}": {"findings": [{"check": c, "fails": True}]} for n, c in enumerate("aab")}
    again = {"wrong 0": ("a", ""), "wrong 1": ("a", "b"), "wrong 2": ("c", "")}
    costs = {name: ablation.Cost(name, *of) for name, of in COSTS.items()}
    monkeypatch.setattr(ablation, "stored", lambda: (again, costs))
    shown = list(ablation.table(rows))
    assert shown[2:4] == [
        "| `a` | 70 | 3 | 9 (56 %) | 2 | 2 | 1 (33.3 %) |",
        "| `b` | 8 | 1 | 3 (19 %) | 1 | 0 |  |",
    ]
    assert "by the 1 other checks that this one is asked, with 4 steps (25 %)" in shown[4]


def test_lines_are_those_of_the_file_a_check_is_written_in() -> None:
    poison = (ROOT / "aggverify/checks/poison.py").read_text("utf-8").count("\n")
    assert ablation.lines(check("infinities_are_seen")) == poison
    assert all(ablation.lines(each) for each in CHECKS)
