"""An engine of a person's own is imported when they name it, never because a file does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Cli

LOCAL_MEAN = """
import torch


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / max(sum(int(mask.sum()) for mask in batch.loss_masks), 1)
"""


def engine(tmp_path: Path, module: str) -> Path:
    """A module with an engine, and the file that its import leaves."""
    mark = tmp_path / "imported"
    (tmp_path / f"{module}.py").write_text(
        f"from dataclasses import replace\nfrom pathlib import Path\n"
        f"from aggverify.engines.mean import MEAN\nPath({str(mark)!r}).touch()\n"
        f"ENGINE = replace(MEAN, name='{module}:ENGINE')\n"
    )
    return mark


@pytest.mark.thorough
def test_a_stored_case_names_an_engine_and_does_not_import_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(LOCAL_MEAN)
    engine(tmp_path, "their_engine")
    options = ["--mode", "token_mean", "--profile", "quick", "--max-examples", "1"]
    ran = cli("check", "r.py", *options, "--engine", "their_engine:ENGINE", "--world", "1")
    assert ran.code == 1, ran
    found = re.search(r"reproduce +aggverify (replay .*)", ran.out)
    assert found is not None
    command = shlex.split(found[1])
    assert command[-2:] == ["--engine", "their_engine:ENGINE"]
    assert cli(*command).code == 1
    unsaid = cli(*command[:-2])
    assert unsaid.code == 2, unsaid
    assert "say --engine MODULE:OBJECT (it was 'their_engine:ENGINE')" in unsaid.err
    other = cli(*command[:-1], "another:ENGINE")
    assert other.code == 2, other


def test_a_candidates_declaration_imports_no_engine(cli: Cli, tmp_path: Path) -> None:
    mark = engine(tmp_path, "declared_engine")
    declared = 'AGGVERIFY = {"mode": "token_mean", "engine": "declared_engine:ENGINE"}\n'
    (tmp_path / "r.py").write_text(declared + LOCAL_MEAN)
    ran = cli("check", "r.py", "--world", "1")
    assert ran.code == 2, ran
    assert "--engine declared_engine:ENGINE" in ran.err
    assert not mark.exists()
