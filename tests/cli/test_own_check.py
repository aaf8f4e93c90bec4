"""A check in a file of its own, with a code of its own, from ``check`` to ``replay``."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aggverify.checks import registered
from tests.conftest import EXAMPLES, Cli

MINE = """
from aggverify.checks import Check, Finding
from aggverify.checks.spaces import alone
from aggverify.codes import Code, Effect, Explanation

CODE = Code(
    "AGV901",
    "A weight is negative",
    "medium",
    consequence="pushes some tokens the wrong way",
    explanation=Explanation("A token's weight has the wrong sign.", "Check what is subtracted."),
)


def judge(subject, executions):
    [ran] = executions
    if ran.weights is None or not (ran.weights < 0).any():
        return None
    message = f"the weight of token {int(ran.weights.argmin())} is negative"
    return Finding(CODE.code, "no_weight_is_negative", message, ran.case, subject.mode)


CHECK = Check(
    name="no_weight_is_negative",
    title="no token is pushed the wrong way",
    space=alone,
    judge=judge,
    project=lambda case: case.trivial,
    max_examples=4,
    codes=(CODE,),
)
POSITIVE = Code("AGV902", "A weight is positive", "medium", effect=Effect.HAZARD)


def judge_positive(subject, executions):
    [ran] = executions
    if ran.weights is None or not (ran.weights > 0).any():
        return None
    return Finding(POSITIVE.code, "no_weight_is_positive", "", ran.case, subject.mode)


HAZARD = Check(
    name="no_weight_is_positive",
    title="a hazard of every right reducer",
    space=alone,
    judge=judge_positive,
    max_examples=2,
    codes=(POSITIVE,),
)
"""
RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"


@pytest.fixture
def with_mine(tmp_path: Path, cli: Cli) -> Iterator[Cli]:
    """The command line with the file's two checks registered."""
    path = tmp_path / "my_check.py"
    path.write_text(MINE, encoding="utf-8")
    mine = SimpleNamespace(**runpy.run_path(str(path)))
    with registered(mine.CHECK, mine.HAZARD):
        yield cli


def checked(cli: Cli, folder: Path, target: Path) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Exit code, checks by name, and the case of every code found."""
    quick = ("--profile", "quick", "--max-examples", "2", "--world", "1", "--report", "json,md")
    code = cli("check", target, *quick, "--report-dir", "out").code
    document = json.loads((folder / "out" / "verdict.json").read_text(encoding="utf-8"))
    [verdict] = document["verdicts"]
    checks = {c["name"]: c for c in verdict["checks"]}
    return code, checks, {f["code"]: f["id"] for f in verdict["findings"]}


def test_a_right_reducer_passes_it_and_a_hazard_is_shown_without_failing(
    tmp_path: Path, with_mine: Cli
) -> None:
    code, checks, found = checked(with_mine, tmp_path, RIGHT)
    assert (code, [*found]) == (0, ["AGV902"])
    assert checks["no_weight_is_positive"]["state"] == "hazard"
    mine = checks["no_weight_is_negative"]
    assert mine["state"] == "ok"
    assert mine["cases"]


@pytest.mark.thorough
def test_a_wrong_one_is_found_reported_explained_and_replayed(
    tmp_path: Path, with_mine: Cli
) -> None:
    wrong = tmp_path / "negative.py"
    text = RIGHT.read_text(encoding="utf-8").replace("return kept", "return -kept")
    wrong.write_text(text, encoding="utf-8")
    code, checks, found = checked(with_mine, tmp_path, wrong)
    assert code == 1
    assert checks["no_weight_is_negative"]["state"] == "failed"
    report = (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert "A weight is negative" in report
    assert "pushes some tokens the wrong way" in report
    explained = with_mine("explain", "agv901").out
    assert "A token's weight has the wrong sign." in explained
    assert "Check what is subtracted." in explained
    replayed = with_mine("replay", found["AGV901"], "--report-dir", "out")
    assert replayed.code == 1
    assert "AGV901" in replayed.out


def test_without_it_neither_is_known(cli: Cli) -> None:
    assert cli("explain", "AGV901").code == 2
    assert "AGV901" not in cli("explain").out
