"""``--step production``: one step of the size that is trained with."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.checks import Finding, check
from aggverify.checks.production import NAME
from aggverify.execution.subject import Subject
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.conftest import EXAMPLES, Cli

RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"
GRID = """
import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}
BLOCKS = 65_535


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept[: BLOCKS * 4].sum() / max(batch.num_tokens, 1)
"""
"""A kernel's grid has so many blocks at most, each of four tokens: the rest is left out."""


@pytest.mark.covers(check=NAME)
def test_it_is_asked_for_by_name(cli: Cli) -> None:
    listed = cli("check", RIGHT, "--mode", "token_mean", "--list")
    assert NAME in listed.out
    assert "only with --step production" in listed.out
    wrong = cli("check", RIGHT, "--step", "prodution")
    assert (wrong.code, "did you mean 'production'" in wrong.err) == (2, True), wrong


def found_in(path: Path, pool: Pool) -> tuple[Subject, Finding | None]:
    """What the check's one case comes to."""
    request, holds = Request(str(path), modes=("token_mean",), step="production"), check(NAME)
    with loaded(request, pool) as ([subject], executor):
        executor.begin()
        assert holds.only is not None
        [case] = holds.only(subject)
        assert case.step.num_response_tokens > 8_000_000
        assert (case.layout.world_size, case.layout.num_microbatches) == (8, 4)
        [done] = executor.run(subject, [case])
        assert done.failure is None
        assert done.peak_bytes > 8 * case.step.num_response_tokens
        return subject, holds.judge(subject, [done])


@pytest.mark.thorough
def test_a_right_one_holds(shared_pool: Pool) -> None:
    subject, found = found_in(RIGHT, shared_pool)
    assert found is None
    said = check(NAME).establishes
    assert said is not None
    assert "512 rollouts and 8,382,208 tokens on 8 ranks" in said(subject, 1)


@pytest.mark.thorough
def test_what_is_lost_beyond_a_grid_is_found(tmp_path: Path, shared_pool: Pool) -> None:
    (tmp_path / "r.py").write_text(GRID)
    _, found = found_in(tmp_path / "r.py", shared_pool)
    assert found is not None
    assert found.code == "AGV204"
