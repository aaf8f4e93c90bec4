"""The script of a finding shows it with nothing but torch, and that a right reducer is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aggverify.report import model
from aggverify.report.formats import FORMATS
from tests.conftest import EXAMPLES, Cli

WRONG = {
    "micro_batch_token_mean": "native/accumulated_mean/token_mean.py",
    "cp_shard_mean": None,
    "cp_shard_sample_mean": "slime/sample_mean.py",
    "padded_width": None,
    "partial_groups": None,
}
"""Broken examples, with a right one of the same mode, convention and engine where there is one."""


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Where this package cannot be imported."""
    (folder / "aggverify.py").write_text("raise ImportError('not without this package')\n")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "script.py", *map(str, arguments)],
        cwd=folder,
        env=environment | {"PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRONG)
def test_the_script_shows_the_same_weights(name: str, cli: Cli, tmp_path: Path) -> None:
    path = EXAMPLES / "broken" / f"{name}.py"
    brief = ("--profile", "quick", "--world", "4", "--max-examples", "5")
    ran = cli("check", path, *brief, "--report", "json,html")
    assert ran.code == 1, ran
    document = model.load(tmp_path / ".aggverify" / "verdict.json")
    [verdict] = document.verdicts
    finding = next(f for f in verdict.findings if f.script is not None)
    assert finding.script is not None and finding.weights is not None
    assert "Without aggverify" in FORMATS["html"].render(document)
    (tmp_path / "script.py").write_text(finding.script)
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    actual = [line.split("actual ")[1].split()[0] for line in done.stdout.splitlines()]
    assert [float(a) for a in actual] == pytest.approx([b for _, b in finding.weights])
    assert f"token {finding.token}: " in done.stdout and "<- wrong" in done.stdout
    right = WRONG[name]
    if right is not None:
        fixed = run(tmp_path, EXAMPLES / right)
        assert fixed.returncode == 0, (fixed.stdout, fixed.stderr)
