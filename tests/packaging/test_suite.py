"""A person's project with the wheel installed: three lines of test file, and ``pytest -n auto``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES
from tests.packaging.conftest import Installed

TEST = """
import aggverify
test_right = aggverify.conformance("right.py", modes=["token_mean"], profile="quick")
test_wrong = aggverify.conformance("wrong.py", modes=["token_mean"], profile="quick")
"""
BROKEN = "broke test_loss.py::test_wrong[token_mean-independent_of_{}]"


@pytest.mark.exhaustive
def test_a_suite_of_three_lines(wheel: Path, tmp_path: Path) -> None:
    installed, project = Installed.make(tmp_path / "venv"), tmp_path / "project"
    installed.add(wheel)
    project.mkdir()
    shutil.copy(EXAMPLES / "native" / "sum" / "token_mean.py", project / "right.py")
    shutil.copy(EXAMPLES / "broken" / "micro_batch_token_mean.py", project / "wrong.py")
    (project / "test_loss.py").write_text(TEST)
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nfilterwarnings = 'error'\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [installed.python, "-m", "pytest", "-n", "auto", "-q"]
    ran = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    out = ran.stdout
    assert "its token_mean weight" in out and "right.py · token_mean · engine sum" in out
    assert "Traceback" not in out and " error" not in out.splitlines()[-1]
    for what in ("micro_batches", "data_parallel_size"):
        assert BROKEN.format(what) in out
    assert "test_right" not in out.partition("short test summary info")[2]
    # Assertions of ours are not pytest's to rewrite, which takes a second in every process.
    ours = installed.site / "aggverify"
    assert list(ours.rglob("session.*.pyc"))
    rewritten = {path.name.partition(".")[0] for path in ours.rglob("*-pytest-*.pyc")}
    assert rewritten <= {"__init__", "plugin", "probes"}, "imported before the plugin can say so"
