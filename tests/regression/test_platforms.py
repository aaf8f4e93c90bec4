"""Annotations, summaries and code quality: what a platform shows of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from aggverify.codes.identity import About
from aggverify.model import render
from aggverify.regression.annotations import commands
from aggverify.regression.compare import compare
from aggverify.regression.model import Kind
from aggverify.report.markdown import MARKER
from tests.conftest import Cli
from tests.regression.documents import document, pairs, verdict
from tests.unit.test_reports_hostile import HOSTILE


def test_the_summary_and_the_line_of_the_reducer(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("import torch\n\ndef reduce(losses, batch):\n    pass\n")
    for side, made in zip(("base", "head"), pairs()[Kind.NEW_FAILURE](), strict=True):
        (tmp_path / f"{side}.json").write_text(render(made))
    summary = tmp_path / "summary.md"
    env = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(tmp_path)}
    ran = cli("compare", "base.json", "head.json", "--github", env=env)
    [line] = [line for line in ran.out.splitlines() if line.startswith("::")]
    assert line.startswith("::error file=r.py,line=3,title=new-failure%3A AGV201 ")
    assert "Merging this makes gradients cp_size times too small" in line
    assert "Reproduce: aggverify replay " in line
    assert summary.read_text().startswith(MARKER)


def test_at_most_ten_annotations_of_one_line_each(tmp_path: Path) -> None:
    red = verdict(HOSTILE, reports=1)
    many = [replace(red, about=About(f"r{n}.py:reduce", f"{HOSTILE}{n}", "sum")) for n in range(14)]
    lines = commands(compare(document(), document(*many)), tmp_path)
    assert len(lines) == 10 and lines[-1] == "::notice::5 more changes: see the report"
    assert all(line.isprintable() and line.startswith("::") for line in lines)


def test_the_code_quality_report(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("\ndef reduce(losses, batch):\n    pass\n")
    for side, made in zip(("base", "head"), pairs()[Kind.NEW_FAILURE](), strict=True):
        (tmp_path / f"{side}.json").write_text(render(made))
    ran = cli("compare", "base.json", "head.json", "--format", "codequality")
    [found] = json.loads(ran.out)
    assert found["location"] == {"path": "r.py", "lines": {"begin": 2}}
    assert found["severity"] == "major" and len(found["fingerprint"]) == 64
    assert found["description"].startswith("AGV201 Result depends on context-parallel size: ")
