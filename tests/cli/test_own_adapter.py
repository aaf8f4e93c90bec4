"""A convention of the person's own: the framework's function stays the target, and whatever runs a
case again is told the file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, Cli

BRIEF = ("--profile", "quick", "--world", "2", "--max-examples", "2", "--mode", "token-mean")
ADAPTER = """
ADAPTER = {
    "engine": "mean",
    "rows": "padded",
    "modes": {"token_mean": "token-mean", "sample_mean": "seq-mean-token-mean"},
    "not_claimed": {"context-parallel": "gathered before the loss", "fan-out": "rows are rollouts"},
    "notes": ["clipping is not exercised"],
}


def call(agg_loss, losses, batch):
    return agg_loss(losses, batch.mask, mode=batch.mode, dp_size=batch.dp_size,
                    batch_num_tokens=batch.num_tokens, global_batch_size=batch.num_rollouts)
"""
SOURCE = """
def agg_loss(loss_mat, loss_mask, *, mode, dp_size, batch_num_tokens, global_batch_size):
    if mode == "token-mean":
        return (loss_mat * loss_mask).sum() / max(batch_num_tokens, 1) * dp_size
    rows = (loss_mat * loss_mask).sum(-1) / loss_mask.sum(-1).clamp(min=1)
    return rows.sum() / global_batch_size * dp_size
"""
WRONG = SOURCE.replace("max(batch_num_tokens, 1)", "loss_mask.sum().clamp(min=1)")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "verl.py").write_text(ADAPTER)
    path = tmp_path / "theirs.py"
    path.write_text(SOURCE)
    return path


def test_a_framework_s_function_is_checked_through_five_lines(cli: Cli, theirs: Path) -> None:
    said = ("--adapter", "verl.py", *BRIEF, "--world", "1", "--max-examples", "1")
    ran = cli("check", "theirs.py:agg_loss", *said, "-v")
    assert ran.code == 0, ran
    assert "theirs.py:agg_loss   verl.py · " in ran.out
    assert " · engine mean (verl.py's default)" in ran.out
    assert "clipping is not exercised" in ran.out
    assert "context-parallel: gathered before the loss" in ran.out


@pytest.mark.thorough
def test_a_wrong_one_is_found_and_replayed_through_it(cli: Cli, theirs: Path) -> None:
    theirs.write_text(WRONG)
    (theirs.parent / "pyproject.toml").write_text('[tool.aggverify]\nadapter = "verl.py"\n')
    ran = cli("check", "theirs.py:agg_loss", "--exit-first", *BRIEF)
    assert ran.code == 1, ran
    found = re.search(r"reproduce +aggverify (replay (?:.*\\\n)*.*)", ran.out)
    assert found is not None and "AGV202" in ran.out
    command = shlex.split(found[1].replace("\\\n", " "))
    again = cli(*command)
    assert again.code == 1 and "FAILED" in again.out, again
    at = command.index("--adapter")
    unsaid = cli(*command[:at], *command[at + 2 :])
    assert unsaid.code == 2
    assert "say --adapter FILE" in unsaid.err
    theirs.write_text(SOURCE)
    fixed = cli(*command)
    assert fixed.code == 0 and "FIXED" in fixed.out, fixed


@pytest.mark.thorough
def test_two_paths_and_a_snapshot_go_through_it(
    cli: Cli, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)  # there, nothing is recorded
    (theirs.parent / "old.py").write_text(WRONG)
    said = ("theirs.py:agg_loss", "--adapter", "verl.py")
    ran = cli("check", *said, "--against", "old.py:agg_loss", *BRIEF)
    assert ran.code == 1 and "AGV521" in ran.out, ran
    recorded = cli("snapshot", "record", *said, "--mode", "token_mean")
    assert recorded.code == 0, recorded
    unsaid = cli("snapshot", "check")
    assert unsaid.code == 2 and "say --adapter FILE" in unsaid.err, unsaid
    assert cli("snapshot", "check", "--adapter", "verl.py").code == 0
    theirs.write_text(WRONG)
    assert cli("snapshot", "check", "--adapter", "verl.py").code == 1


@pytest.mark.thorough
def test_what_is_wrong_with_the_file_is_no_finding(cli: Cli, theirs: Path) -> None:
    (theirs.parent / "verl.py").write_text("import no_such_module\n" + ADAPTER)
    ran = cli("check", "theirs.py:agg_loss", "--adapter", "verl.py", *BRIEF)
    assert ran.code == 2, ran
    assert "verl.py: ModuleNotFoundError" in ran.err


@pytest.mark.thorough
def test_what_a_client_normalises_by_is_checked(cli: Cli) -> None:
    folder = EXAMPLES / "tinker"
    said = ("--adapter", folder / "adapter.py", "--mode", "prompt_mean", "--profile", "quick")
    said = (*said, "--world", "2")
    right = cli("check", f"{folder}/client.py:prompt_mean_weights", *said)
    assert right.code == 0, right
    wrong = cli("check", f"{folder}/client.py:rollouts_for_prompts", "--exit-first", *said)
    assert wrong.code == 1 and "AGV101" in wrong.out, wrong
    assert "P/num_samples" in wrong.out
