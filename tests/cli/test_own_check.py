"""A check in a file of its own, with a code of its own, from ``check`` to ``replay``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import EXAMPLES

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
RUN = """
import my_check

from aggverify.checks import register
from aggverify.cli import main

if __name__ == "__main__":
    register(my_check.CHECK, my_check.HAZARD)
    main()
"""
RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "my_check.py").write_text(MINE, encoding="utf-8")
    (folder / "run.py").write_text(RUN, encoding="utf-8")
    command = [sys.executable, str(folder / "run.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def checked(folder: Path, target: Path) -> tuple[int, dict[str, dict[str, object]], dict[str, str]]:
    """Exit code, checks by name, and the case of every code found."""
    quick = ("--profile", "quick", "--max-examples", "2", "--world", "1", "--report", "json,md")
    done = run(folder, "check", str(target), *quick, "--report-dir", "out")
    document = json.loads((folder / "out" / "verdict.json").read_text(encoding="utf-8"))
    [verdict] = document["verdicts"]
    checks = {c["name"]: c for c in verdict["checks"]}
    return done.returncode, checks, {f["code"]: f["id"] for f in verdict["findings"]}


def test_a_right_reducer_passes_it_and_a_hazard_is_shown_without_failing(tmp_path: Path) -> None:
    code, checks, found = checked(tmp_path, RIGHT)
    assert (code, [*found]) == (0, ["AGV902"])
    assert not checks["no_weight_is_positive"]["failed"]
    mine = checks["no_weight_is_negative"]
    assert (mine["skipped"], mine["failed"]) == (None, False)
    assert mine["cases"]


def test_a_wrong_one_is_found_reported_explained_and_replayed(tmp_path: Path) -> None:
    wrong = tmp_path / "negative.py"
    text = RIGHT.read_text(encoding="utf-8").replace("return kept", "return -kept")
    wrong.write_text(text, encoding="utf-8")
    code, checks, found = checked(tmp_path, wrong)
    assert code == 1
    assert checks["no_weight_is_negative"]["failed"]
    report = (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert "A weight is negative" in report
    assert "pushes some tokens the wrong way" in report
    told = run(tmp_path, "explain", "agv901").stdout
    assert "A token's weight has the wrong sign." in told
    assert "Check what is subtracted." in told
    replayed = run(tmp_path, "replay", found["AGV901"], "--report-dir", "out")
    assert replayed.returncode == 1
    assert "AGV901" in replayed.stdout
