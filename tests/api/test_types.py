"""mypy and pyright say the same of every name that a person imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import aggverify
from tests.conftest import ROOT

TYPES = {
    'aggverify.observe("r.py", "1/1")': "Observation",
    'aggverify.observe("r.py", "1/1").weights': "tuple[float, ...] | None",
    'aggverify.observe("r.py", "1/1").traces': "tuple[tuple[Collective, ...], ...]",
    'aggverify.verify("r.py")': "tuple[Verdict, ...]",
    'aggverify.check_reducer("r.py")': "None",
    'aggverify.load_verdict("v.json")': "Document",
    'aggverify.parse_step("1/1")': "Step",
    "strategies.cases()": "SearchStrategy[Case]",
}
"""Expressions, and their types without the modules they are from."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "typed.py"
    lines = ["import aggverify", "from aggverify import strategies"]
    lines += [f"reveal_type({expression})" for expression in TYPES]
    lines += [f"aggverify.{name}" for name in aggverify.__all__]
    path.write_text("\n".join([*lines, "aggverify.verfiy", ""]))
    return path


def plain(kind: str) -> str:
    """``Step`` for ``aggverify.oracles.step.Step``."""
    words = "".join(c if c.isalnum() or c in "._" else f" {c} " for c in kind).split(" ")
    named = [word.rpartition(".")[2] if word.strip(".") else word for word in words]
    return "".join(named).replace(",", ", ").replace("|", " | ")


@pytest.mark.thorough
def test_mypy(file: Path) -> None:
    pytest.importorskip("mypy")
    env = os.environ | {"MYPYPATH": str(ROOT)}  # an editable install is invisible to mypy
    command = [sys.executable, "-m", "mypy", "--strict", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=file.parent, env=env)
    told = [line.partition('type is "')[2][:-1] for line in done.stdout.splitlines()]
    assert [plain(kind) for kind in told if kind] == list(TYPES.values()), done.stdout
    errors = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("typed.py") and " error: " in line
    ]
    assert len(errors) == 1 and 'no attribute "verfiy"' in errors[0], done.stdout


@pytest.mark.network
@pytest.mark.exhaustive  # a minute
def test_pyright(file: Path, tmp_path: Path) -> None:
    """basedpyright is pyright as a wheel with all it needs; pyright's own downloads more."""
    made = tmp_path / "checker"
    venv.create(made, with_pip=True)
    install = [made / "bin" / "pip", "install", "--quiet", "basedpyright"]
    subprocess.run(list(map(str, install)), check=True)
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    config = {"extraPaths": paths, "typeCheckingMode": "strict", "reportUnusedExpression": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [str(made / "bin" / "basedpyright"), "--outputjson", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    told = json.loads(done.stdout)["generalDiagnostics"]
    kinds = [d["message"] for d in told if d["severity"] == "information"]
    assert [kind.rpartition(' is "')[2][:-1] for kind in kinds] == list(TYPES.values())
    errors = {d["message"] for d in told if d["severity"] == "error"}
    assert errors and all("verfiy" in error for error in errors), errors
