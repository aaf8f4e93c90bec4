"""Two paths of one framework, compared without an oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggverify.run.outcome.store import StoredCase
from tests.conftest import EXAMPLES, Cli

NATIVE = EXAMPLES / "native"
OLD = EXAMPLES / "broken" / "micro_batch_token_mean.py"
QUICK = ("--profile", "quick", "--world", "2")


@pytest.mark.thorough
def test_the_same_mode_under_two_engines_agrees(cli: Cli) -> None:
    new, old = NATIVE / "sum" / "token_mean.py", NATIVE / "accumulated_mean" / "token_mean.py"
    ran = cli("check", new, "--against", old, *QUICK, "-v")
    assert ran.code == 0, ran
    assert "two_paths_agree" in ran.out


@pytest.mark.thorough
def test_paths_that_differ_are_shown_on_the_smallest_step(cli: Cli, tmp_path: Path) -> None:
    new = NATIVE / "sum" / "token_mean.py"
    ran = cli("check", new, "--against", OLD, *QUICK)
    assert ran.code == 1, ran
    assert "  AGV521  Two paths give different weights" in ran.out
    [path] = (tmp_path / ".aggverify" / "cases").glob("*.json")
    stored = StoredCase.from_json(json.loads(path.read_text()))
    assert (len(stored.case.step.samples), stored.case.layout.num_microbatches) == (2, 2)
    alone = cli("replay", stored.id, new)
    assert alone.code == 2
    assert "say --against TARGET" in alone.err
    again = cli("replay", stored.id, new, "--against", OLD)
    assert again.code == 1, again
    assert "FAILED" in again.out
    mended = cli("replay", stored.id, new, "--against", new)
    assert mended.code == 0, mended
