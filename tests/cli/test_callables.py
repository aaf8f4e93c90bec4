"""Callables of every kind, checked by their names: a right one conforms, a wrong one is found."""

from __future__ import annotations

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
    [("double", 1)]
    + [pytest.param(*row, marks=pytest.mark.thorough) for row in (("right", 0), ("part", 0))]
    + [pytest.param("wrong", 1, marks=pytest.mark.thorough)]
    + [pytest.param("right.forward", 0, marks=pytest.mark.thorough)],
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


@pytest.fixture
def package(tmp_path: Path) -> None:
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "core.py").write_text("def total(losses, batch):\n    return losses.sum()\n")
    (folder / "r.py").write_text("from .core import total as reduce\n")


@pytest.mark.usefixtures("package")
def test_a_relative_import_is_answered_with_the_dotted_name(cli: Cli) -> None:
    ran = cli("check", "pkg/r.py")
    assert ran.code == 2, ran
    assert "the file is part of a package: aggverify check pkg.r" in ran.err, ran


@pytest.mark.thorough
@pytest.mark.usefixtures("package")
def test_the_dotted_name_works(shell: Cli) -> None:
    ran = shell("check", "pkg.r", "--list")
    assert ran.code == 0, ran
    assert ran.out.startswith("pkg.r · reduce")
