"""Callables of every kind, checked by their names: a right one conforms, a wrong one is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli

BRIEF = ["--profile", "quick", "--max-examples", "2", "--world", "2"]
FILE = """
import functools
import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

def _scaled(losses, batch, scale):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return scale * kept.sum() / max(batch.num_tokens, 1)

class Layer(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
    def forward(self, x, data):
        return _scaled(x, data, self.scale)

right, wrong = Layer(1.0), Layer(2.0)
part, double = functools.partial(_scaled, scale=1.0), functools.partial(_scaled, scale=2.0)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "code"),
    [("double", 1), ("right", 0), ("part", 0), ("wrong", 1), ("right.forward", 0)],
)
def test_a_callable_is_judged_by_what_it_returns(
    cli: Cli, tmp_path: Path, name: str, code: int
) -> None:
    (tmp_path / "calls.py").write_text(FILE)
    ran = cli("check", f"calls.py:{name}", *BRIEF)
    assert ran.code == code, ran
    assert f"calls.py:{name}" in ran.out
    if code:
        assert "2 times too much" in ran.out, ran


METHODS = """
import torch

class GRPO:
    def __init__(self, scale=2.0):
        self.scale, self.calls = scale, 0

    def loss(self, losses, batch):
        self.calls += 1
        kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
        return self.scale * kept.sum() / max(batch.num_tokens, 1)

    def report(self, losses): ...

class Needy(GRPO):
    def __init__(self, args):
        super().__init__(1.0)
"""
CLAIMED = ("--mode", "token_mean", "--engine", "sum", "--only", "weights_are_the_modes")


def test_a_method_is_called_on_an_object_that_is_built(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "grpo.py").write_text(METHODS.replace("scale=2.0", "scale=1.0"))
    ran = cli("check", "grpo.py:GRPO.loss", *BRIEF, *CLAIMED)
    assert ran.code == 0 and "grpo.py:GRPO.loss   native" in ran.out, ran


@pytest.mark.thorough
def test_a_wrong_method_its_case_and_its_export(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "grpo.py").write_text(METHODS)
    ran = cli("check", "grpo.py:GRPO.loss", *BRIEF, *CLAIMED, "--report", "json")
    assert ran.code == 1 and "2 times too much" in ran.out, ran
    verdict = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())["verdicts"][0]
    [finding] = verdict["findings"]
    for text, code in ((METHODS, 1), (METHODS.replace("scale=2.0", "scale=1.0"), 0)):
        (tmp_path / "grpo.py").write_text(text)
        folder = tmp_path / f"out{code}"
        assert cli("replay", finding["id"], "--export", folder).code == code
        done = subprocess.run([sys.executable, folder / "run.py"], capture_output=True, text=True)
        assert done.returncode == code and ("2 times that" in done.stdout) == code, done


@pytest.mark.thorough
def test_the_one_method_that_fits_is_found_without_its_name(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "grpo.py").write_text(METHODS.replace("scale=2.0", "scale=1.0"))
    ran = cli("check", "grpo.py", *BRIEF, *CLAIMED)
    assert ran.code == 0 and "grpo.py:GRPO.loss   native" in ran.out, ran


def test_a_method_that_needs_more_is_answered_with_the_command(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "grpo.py").write_text(
        METHODS.partition("class Needy")[0].replace("scale=2.0", "scale")
    )
    for target in ("grpo.py", "grpo.py:GRPO.loss"):
        ran = cli("check", target)
        assert ran.code == 2, ran
        assert "GRPO.loss(losses, batch): is a method, and GRPO cannot be built" in ran.err
        assert "aggverify new grpo.py:GRPO.loss\n" in ran.err
        assert "conventions" not in ran.err and "GRPO(scale)" not in ran.err


@pytest.fixture
def package(tmp_path: Path) -> None:
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "core.py").write_text("def total(losses, batch):\n    return losses.sum()\n")
    (folder / "r.py").write_text("from .core import total as reduce\n")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("command", ["check", "new"])
def test_a_relative_import_is_answered_with_the_dotted_name(cli: Cli, command: str) -> None:
    ran = cli(command, "pkg/r.py")
    assert ran.code == 2, ran
    assert f"the file is part of a package: aggverify {command} pkg.r" in ran.err, ran


@pytest.mark.thorough
@pytest.mark.usefixtures("package")
def test_the_dotted_name_works(shell: Cli) -> None:
    ran = shell("check", "pkg.r", "--list")
    assert ran.code == 0, ran
    assert ran.out.startswith("pkg.r · reduce")
