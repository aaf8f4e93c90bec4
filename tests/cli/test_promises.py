"""A promise of the trainer's holds in every step that ranks are given: a right reducer that refuses
any other one conforms, as does one whose calls are slow. One that loops now and then does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.choosing import LATER
from tests.conftest import Cli

MEAN = """
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / max(batch.num_tokens, 1)
"""
PAIRS = """
    groups = list(batch.group_ids)
    if groups[::2] != groups[1::2] or 2 * len(set(groups)) != len(groups):
        raise RuntimeError(f"no pairs: {groups}")
"""
SLOW = """
    torch.ones(1 << 20).cumsum(0)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "options"),
    [
        LATER(PAIRS, ("--group-size", "2")),
        (PAIRS, ("--group-size", "2", "--world", "2")),
        (SLOW, ()),
        LATER(SLOW, ("--profile", "ci", "--max-examples", "3")),
    ],
)
def test_a_promise_is_kept_and_slow_calls_are_waited_for(
    cli: Cli, tmp_path: Path, body: str, options: tuple[str, ...]
) -> None:
    head = "import torch\n\n\ndef reduce(losses, batch):"
    (tmp_path / "r.py").write_text(head + body + MEAN)
    how = ("--mode", "token_mean", "--engine", "sum", "--profile", "quick")
    ran = cli("check", "r.py", *how, *options)
    assert ran.code == 0, ran


@pytest.mark.exhaustive  # a loop takes its whole time limit, several times: minutes
def test_a_loop_that_does_not_come_back_is_no_pass(cli: Cli, tmp_path: Path) -> None:
    """It is gone in fresh ranks, as slowness would be."""
    (tmp_path / "r.py").write_text(
        "import torch\n\nCALLS = []\n\n\ndef reduce(losses, batch):\n"
        "    CALLS.append(None)\n    while len(CALLS) == 90:\n        pass\n" + MEAN.lstrip("\n")
    )
    how = ("--mode", "token_mean", "--engine", "sum", "--profile", "quick", "--world", "1")
    ran = cli("check", "r.py", *how, "-x")
    assert ran.code in (1, 2), ran
    assert "AGV414" in ran.out or "runs of a step, rank 0 did not finish within" in ran.flat
    assert "AGV406" not in ran.out, ran
