"""Every shipped example, as a person runs it: correct ones exit 0, broken ones are explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggverify.run.outcome.store import StoredCase
from tests.choosing import LATER, thorough_but
from tests.conftest import EXAMPLES, Cli

REFUSING = EXAMPLES / "slime" / "refusing" / "constant.py"
CORRECT = sorted(
    path
    for folder in ("native", "slime")
    for path in (EXAMPLES / folder).rglob("*.py")
    if path.name != "zigzag.py" and path != REFUSING
)
BROKEN = {
    # file: the code, what it says, and the smallest step: samples, tokens, ranks
    "micro_batch_token_mean.py": (
        "AGV202",
        "the mean over micro-batches of each one's own token",
        (2, 3, 1),
    ),
    "hardcoded_divisor.py": ("AGV101", "divides by 1000 where the divisor is 16", (1, 1, 1)),
    "cp_shard_mean.py": (
        "AGV201",
        "the mean over CP shards of each shard's own token mean",
        (1, 1, 2),
    ),
    "cp_shard_sample_mean.py": (
        "AGV201",
        "unmasked tokens of the sample within one cp rank",
        (1, 2, 2),
    ),
    "bfloat16_count.py": (
        "AGV301",
        "the 257 tokens of the step were 256: the count is rounded",
        (1, 257, 1),
    ),
    "padded_width.py": ("AGV141", "the padded width of the batch at hand", (1, 2, 1)),
    "partial_groups.py": (
        "AGV206",
        "part of a prompt group divided by that part's own tokens",
        (2, 2, 1),
    ),
    "rejected_tokens.py": ("AGV142", "denominators count the mask after rejection", (1, 2, 1)),
    "cp_shard_geometric_mean.py": ("AGV211", "a sequence's statistic is taken of each", (1, 1, 2)),
    "kl_local_count.py": ("AGV207", "the weights of kl, with everything else 0", (2, 2, 1)),
    "configured_window.py": ("AGV208", "scaled by a configured number of micro-batches", (1, 1, 1)),
    "sorted_ids.py": (
        "AGV205",
        "weights are handed out in ascending order of rollout ids",
        (2, 3, 1),
    ),
    "reported_loss.py": ("AGV102", "the reported loss is N times the objective", (2, 2, 1)),
}


BRIEF = ("--profile", "quick", "--world", "4", "--max-examples", "4")
"""Stored cases and a few drawn ones: each example says what it is about in every check."""


def name(path: Path) -> str:
    return str(path.relative_to(EXAMPLES).with_suffix(""))


KEPT = ("slime/constant",)
POWER = "(1/2)"
QUICK_BROKEN = ("configured_window.py",)


@pytest.mark.parametrize(
    "path",
    thorough_but(CORRECT, lambda p: False, ids=name, each=40, always=lambda p: name(p) in KEPT),
)
def test_a_correct_example_conforms(cli: Cli, path: Path) -> None:
    ran = cli("check", path, *BRIEF)
    assert ran.code == 0, ran
    mode = path.stem.removesuffix("_whole_groups")
    assert f"its {mode + POWER * (mode == 'length_weighted')} weight" in ran.out


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("gspo.py", ""),
        ("dpo.py", "pair_logsigmoid(1/10)'s on one rank, and "),
        LATER("gmpo.py", ""),
    ],
)
def test_a_non_linear_reference_is_the_same_everywhere(cli: Cli, file: str, known: str) -> None:
    ran = cli("check", EXAMPLES / "nonlinear" / file, *BRIEF, "-v")
    assert ran.code == 0, ran
    words = " ".join(ran.out.split())
    assert f"PASS value and gradient are {known}the same in every layout" in words
    assert "a fixed bound of 2^-30" in words


@pytest.mark.thorough
def test_a_hazard_is_named_and_no_failure_until_it_is_claimed(cli: Cli, tmp_path: Path) -> None:
    path = EXAMPLES / "hazards" / "slime_sample_mean.py"
    ran = cli("check", path, *BRIEF, "--report", "json,junit")
    assert ran.code == 0, ran
    assert "HAZARD  AGV123  NaN or infinity behind the mask reaches the loss" in ran.out
    assert "its sample_mean weight" in ran.out
    assert ", 1 hazard, " in ran.out
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    [hazard] = document["verdicts"][0]["findings"]
    assert (hazard["effect"], hazard["promise"]) == ("hazard", "poison")
    states = {c["name"]: c["state"] for c in document["verdicts"][0]["checks"]}
    assert [n for n, state in states.items() if state == "hazard"] == ["masked_nans_never_matter"]
    assert states["masked_values_never_matter"] == "ok"
    assert "system-out" in (tmp_path / ".aggverify" / "junit.xml").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("claim", [("--claim", "poison"), ("--strict",)])
def test_a_hazard_fails_where_it_is_claimed(cli: Cli, claim: tuple[str, ...]) -> None:
    path = EXAMPLES / "hazards" / "multiply_by_mask.py"
    ran = cli("check", path, *BRIEF, *claim)
    assert ran.code == 1, ran
    assert "FAIL  AGV123  NaN or infinity behind the mask reaches the loss" in ran.out
    assert "0 * NaN is NaN" in ran.out


@pytest.mark.thorough
def test_what_is_accepted_is_shown_and_fails_nothing(cli: Cli) -> None:
    path, reason = EXAMPLES / "broken" / "hardcoded_divisor.py", "the trainer's default is 1000"
    ran = cli("check", path, *BRIEF, "--accept", f"AGV101={reason}")
    assert ran.code == 0, ran
    assert "WAIVED  AGV101  Weights are not the mode's" in ran.out
    assert f"  waived       {reason}" in ran.out
    assert f"AGV101 waives 1 finding: {reason}" in ran.out


@pytest.mark.thorough
def test_a_waiver_for_nothing_is_said(cli: Cli) -> None:
    path = EXAMPLES / "native" / "sum" / "token_mean.py"
    ran = cli("check", path, *BRIEF, "--accept", "AGV206:abc=gone", "--world", "1")
    assert ran.code == 2, ran
    assert "Nothing was found that --accept AGV206:abc is for" in ran.err


@pytest.mark.thorough
def test_a_refusal_is_said_and_the_rest_is_judged(cli: Cli, tmp_path: Path) -> None:
    ran = cli("check", REFUSING, *BRIEF, "--world", "2", "--report", "json,md")
    assert ran.code == 0, ran
    assert "PASS  every token has its constant weight" in ran.out
    assert "  refused      context parallelism: 'only supports cp_size == 1'" in ran.out
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    [verdict] = document["verdicts"]
    assert [r["feature"] for r in verdict["refused"]] == ["context-parallel"]
    assert verdict["layouts_refused"] > 0 < verdict["layouts_left"]
    states = {c["name"]: c["state"] for c in verdict["checks"]}
    assert states["independent_of_context_parallel_size"] == "refused"
    assert states["independent_of_data_parallel_size"] == "ok"
    summary = (tmp_path / ".aggverify" / "summary.md").read_text()
    assert f"({verdict['layouts_refused']} layouts refused, " in summary
    assert "Conforms: constant; refuses context parallelism: 'only supports" in summary


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "code"),
    [(("--divisor", "1000"), "AGV101"), (("--claim", "context-parallel"), "AGV125")],
)
def test_what_is_refused_hides_nothing(cli: Cli, options: tuple[str, ...], code: str) -> None:
    ran = cli("check", REFUSING, *BRIEF, *options)
    assert ran.code == 1, ran
    assert f"  {code}  " in ran.out, ran
    assert "  AGV401  " not in ran.out, ran
    assert "refused      context parallelism: 'only supports cp_size == 1'" in ran.out


def smallest(folder: Path, code: str) -> tuple[int, int, int]:
    """Samples, response tokens and ranks of the stored case with the code."""
    paths = (folder / ".aggverify" / "cases").glob("*.json")
    stored = (StoredCase.from_json(json.loads(path.read_text())) for path in paths)
    case = next(s.case for s in stored if s.code == code)
    return len(case.step.samples), case.step.num_response_tokens, case.layout.world_size


def test_no_broken_example_is_forgotten() -> None:
    large = {"float32_count.py"}  # tests/mutants/test_large_counts.py
    assert {path.name for path in (EXAMPLES / "broken").glob("*.py")} == set(BROKEN) | large


@pytest.mark.parametrize("file", thorough_but(BROKEN, QUICK_BROKEN.__contains__, ids=str, each=18))
def test_a_broken_example_is_explained(cli: Cli, tmp_path: Path, file: str) -> None:
    code, explanation, size = BROKEN[file]
    ran = cli("check", EXAMPLES / "broken" / file, *BRIEF, "-v", "--report", "json")
    assert ran.code == 1, ran
    *_, verdict = ran.out.partition("\nFAIL  ")
    assert code in verdict.replace("(", " ").split(), ran
    assert explanation in ran.flat
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    found = document["verdicts"][0]["findings"]
    assert code in {f["code"] for f in found}
    assert all(f["confirmed"] for f in found)
    stored = sorted((tmp_path / ".aggverify" / "cases").glob("*.json"))
    assert {p.stem for p in stored} == {f["id"] for f in found}
    assert smallest(tmp_path, code) == size
    assert all(p.stat().st_size <= 2048 for p in stored)
