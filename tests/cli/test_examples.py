"""Every shipped example, as a person runs it: correct ones exit 0, broken ones are explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, Cli

CORRECT = sorted(
    path
    for folder in ("native", "slime")
    for path in (EXAMPLES / folder).rglob("*.py")
    if path.name != "zigzag.py"
)
BROKEN = {
    "micro_batch_token_mean.py": ("AGV202", "the mean over micro-batches of each one's own token"),
    "hardcoded_divisor.py": ("AGV101", "divides by 1000 where the divisor is 16"),
    "cp_shard_mean.py": ("AGV201", "the mean over CP shards of each shard's own token mean"),
    "cp_shard_sample_mean.py": ("AGV201", "unmasked tokens of the sample within one cp rank"),
    "bfloat16_count.py": ("AGV301", "the 257 tokens of the step were 256: the count is rounded"),
    "multiply_by_mask.py": ("AGV121", "0 * NaN is NaN"),
    "padded_width.py": ("AGV141", "the padded width of the batch at hand"),
    "partial_groups.py": ("AGV206", "part of a prompt group divided by that part's own tokens"),
    "rejected_tokens.py": ("AGV142", "denominators count the mask after rejection"),
    "cp_shard_geometric_mean.py": ("AGV211", "a sequence's statistic is taken of each"),
    "kl_local_count.py": ("AGV207", "the weights of kl, with everything else 0"),
    "configured_window.py": ("AGV208", "scaled by a configured number of micro-batches"),
    "sorted_ids.py": ("AGV205", "weights are handed out in ascending order of rollout ids"),
    "reported_loss.py": ("AGV102", "the reported loss is N times the objective"),
}


BRIEF = ("--profile", "quick", "--world", "4", "--max-examples", "4")
"""Stored cases and a few drawn ones: each example says what it is about in every check."""


def name(path: Path) -> str:
    return str(path.relative_to(EXAMPLES).with_suffix(""))


@pytest.mark.parametrize("path", CORRECT, ids=name)
def test_a_correct_example_conforms(cli: Cli, path: Path) -> None:
    ran = cli("check", path, *BRIEF)
    assert ran.code == 0, ran
    assert f"conforms: {path.stem.removesuffix('_whole_groups')}" in ran.out


@pytest.mark.parametrize("file", ["gspo.py", "gmpo.py"])
def test_a_non_linear_reference_is_the_same_everywhere(cli: Cli, file: str) -> None:
    ran = cli("check", EXAMPLES / "nonlinear" / file, *BRIEF)
    assert ran.code == 0, ran
    assert "conforms: nonlinear" in ran.out
    assert "a fixed bound of 2^-30" in ran.out


def test_no_broken_example_is_forgotten() -> None:
    large = {"float32_count.py"}  # tests/mutants/test_large_counts.py
    assert {path.name for path in (EXAMPLES / "broken").glob("*.py")} == set(BROKEN) | large


@pytest.mark.parametrize("file", BROKEN)
def test_a_broken_example_is_explained(cli: Cli, tmp_path: Path, file: str) -> None:
    code, explanation = BROKEN[file]
    ran = cli("check", EXAMPLES / "broken" / file, *BRIEF, "--report", "json")
    assert ran.code == 1, ran
    assert f"- {code} " in ran.out, ran
    assert explanation in ran.out
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    found = document["verdicts"][0]["findings"]
    assert code in {f["code"] for f in found}
    assert all(f["confirmed"] for f in found)
    stored = sorted((tmp_path / ".aggverify" / "cases").glob("*.json"))
    assert {p.stem for p in stored} == {f["id"] for f in found}
    assert all(p.stat().st_size <= 2048 for p in stored)
