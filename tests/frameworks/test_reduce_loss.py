"""The convention of SkyRL 0.1, where a whole release is not at hand: its function, in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli

BRIEF = ("--profile", "quick", "--world", "2", "--max-examples", "2")
SOURCE = """
def _mean(tensor, mask, dim=None):
    return (tensor * mask).sum(dim) / mask.sum(dim).clamp(min=1.0)


def reduce_loss(loss, loss_mask, loss_reduction, max_seq_len=None):
    if loss_reduction == "token_mean":
        return _mean(loss, loss_mask)
    if loss_reduction == "sequence_mean":
        return _mean(loss, loss_mask, -1).mean()
    raise ValueError(f"no such reduction: {loss_reduction!r}")
"""


@pytest.mark.covers(convention="skyrl-reduce-loss", engine="accumulated-mean")
@pytest.mark.parametrize(
    ("mode", "code"),
    [("sample_mean", 0), pytest.param("token_mean", 1, marks=pytest.mark.thorough)],
)
def test_a_mean_of_sequences_and_of_tokens(cli: Cli, tmp_path: Path, mode: str, code: int) -> None:
    (tmp_path / "r.py").write_text(SOURCE)
    ran = cli("check", "r.py", "--mode", mode, *BRIEF)
    assert ran.code == code, ran
    assert "r.py:reduce_loss   skyrl-reduce-loss · " in ran.out
    assert ("AGV202" in ran.out) == bool(code)
