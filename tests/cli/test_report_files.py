"""What ``--report pytest`` writes is what it says: a test file that fails today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, ROOT, Cli

BRIEF = ("--profile", "quick", "--world", "2", "--max-examples", "2")


def run_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    """As a person runs the file that was written."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_findings.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.exhaustive
def test_a_test_file_that_fails_until_it_is_fixed(cli: Cli, tmp_path: Path) -> None:
    wrong = (EXAMPLES / "broken" / "micro_batch_token_mean.py").read_text()
    (tmp_path / "r.py").write_text(wrong)
    ran = cli("check", "r.py", *BRIEF, "--report", "pytest", "--report-dir", "out")
    assert ran.code == 1, ran
    text = (tmp_path / "out" / "test_findings.py").read_text()
    (tmp_path / "test_findings.py").write_text(text)
    (tmp_path / "out" / "cases").rename(tmp_path / "gone")  # nothing else is needed
    today = run_tests(tmp_path)
    assert today.returncode == 1 and "passed" not in today.stdout, today.stdout
    assert "AssertionError" in today.stdout and "FAILED  case" in today.stdout, today.stdout
    right = (EXAMPLES / "native" / "accumulated_mean" / "token_mean.py").read_text()
    name = "reduce"
    assert f"def {name}(" in wrong and f"def {name}(" in right
    (tmp_path / "r.py").write_text(right)
    fixed = run_tests(tmp_path)
    assert fixed.returncode == 0, fixed.stdout
