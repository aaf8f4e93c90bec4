"""Reducers that nothing was tuned to: wrong ones are found but for those named, right ones pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggverify.codes import CODES
from aggverify.diagnosis.bugs import BUGS
from aggverify.world import Pool
from tests.branchy.causes import CAUSES, is_found
from tests.branchy.corpora import WRONG as EVERY_WRONG
from tests.branchy.untuned import RIGHT, WRONG, Untuned
from tests.branchy.untuned.judging import judged
from tests.choosing import thorough_at_times

FIRST = Path(__file__).parents[2] / "reports" / "untuned-first.json"


def name(entry: Untuned) -> str:
    return entry.name


@pytest.mark.parametrize("entry", thorough_at_times(WRONG, 60, ids=name))
def test_a_wrong_one_is_found(entry: Untuned, shared_pool: Pool) -> None:
    row = judged(entry, 0, shared_pool)
    assert is_found(entry.name, row) is not bool(entry.missed), row


@pytest.mark.parametrize("entry", thorough_at_times(RIGHT, 40, ids=name))
def test_a_right_one_has_no_finding(entry: Untuned, shared_pool: Pool) -> None:
    row = judged(entry, 0, shared_pool)
    assert (row["exit"], row["findings"]) == (0, []), row


def test_a_cause_is_known_of_each_and_another_one_does_not_count() -> None:
    assert sorted(CAUSES) == sorted(entry.name for entry in EVERY_WRONG)
    known = {*CODES, *(bug.name for bug in BUGS), "samples-dropped", "another-formula"}
    assert all(causes and causes <= known for causes in CAUSES.values())
    told = {"code": "AGV101", "bug": ""}
    assert is_found("grid_rounded", {"exit": 1, "findings": [told]})
    assert not is_found("grid_rounded", {"exit": 0, "findings": [told]})
    assert not is_found("grid_rounded", {"exit": 1, "findings": [told | {"code": "AGV301"}]})
    assert not is_found("grid_rounded", {"exit": 1, "findings": [told | {"bug": "mask-shifted"}]})


def test_the_figure_is_of_all_of_them() -> None:
    first = json.loads(FIRST.read_text(encoding="utf-8"))
    assert len({e.name for e in (*WRONG, *RIGHT)}) == len(WRONG) + len(RIGHT)
    assert {key.rpartition(" ")[0] for key in first} == {e.name for e in (*WRONG, *RIGHT)}
    assert len(WRONG) >= 30 and len(RIGHT) >= 20
