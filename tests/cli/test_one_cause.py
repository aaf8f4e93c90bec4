"""What frameworks really wrote, checked whole: one cause, one sentence, one fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.choosing import thorough_at_times
from tests.conftest import Cli
from tests.corpus import shapes
from tests.corpus.base import Mutant

BRIEF = ("--profile", "quick", "--world", "4", "--max-examples", "4")


@pytest.mark.parametrize("mutant", thorough_at_times(shapes.MUTANTS, 8, ids=lambda m: m.function))
def test_a_real_shape_has_one_cause(cli: Cli, tmp_path: Path, mutant: Mutant) -> None:
    options = ["--mode", mutant.mode, "--engine", mutant.engine, "--report", "json"]
    if mutant.divisor is not None:
        options += ["--divisor", str(mutant.divisor)]
    ran = cli("check", f"tests.corpus.shapes:{mutant.function}", *options, *BRIEF)
    assert ran.code == 1, ran
    [verdict] = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())["verdicts"]
    causes: list[dict[str, Any]] = [
        f for f in verdict["findings"] if f["same_cause_as"] is None and f["effect"] == "fails"
    ]
    told = [(f["code"], [bug["name"] for bug in f["bugs"]]) for f in causes]
    assert [bugs for _, bugs in told] == [[mutant.bug]], ran
    assert ran.out.count("\n  fix   ") == len(causes), ran
