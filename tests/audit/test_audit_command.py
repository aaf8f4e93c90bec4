"""``aggverify audit`` on jobs of two ranks: plain loops under real engines, right and wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.choosing import LATER
from tests.conftest import Cli

LOOPS = Path(__file__).parent / "loops.py"
FORKED = (sys.executable, LOOPS.with_name("forked.py"))
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def audited(
    cli: Cli,
    folder: Path,
    *said: str,
    job: Sequence[str | Path],
    started: Sequence[str | Path] = FORKED,
) -> tuple[int, Any]:
    """The exit code and the verdict of a job of two ranks."""
    ran = cli("audit", *said, "--report", "json,html,md,junit", "--", *started, *job)
    document = json.loads((folder / ".aggverify" / "verdict.json").read_text())
    [verdict] = document["verdicts"]
    assert document["exit"] == ran.code, ran.err
    return ran.code, verdict


def found(verdict: Any) -> list[str]:
    return [finding["code"] for finding in verdict["findings"]]


def worst(verdict: Any) -> tuple[str, float]:
    """The expected and the actual weight that the first finding shows."""
    finding = verdict["findings"][0]
    n = finding["token"]
    return finding["expected"][n], float.fromhex(finding["observed"][n])


@pytest.mark.thorough
def test_a_run_is_recorded_judged_and_stored_as_a_case(cli: Cli, tmp_path: Path) -> None:
    said = ("--mode", "token_mean", "--engine", "ddp", "--verify-engine", "--probe-dir", "p")
    code, verdict = audited(cli, tmp_path, *said, job=[LOOPS, "ddp", ""], started=TORCHRUN)
    assert (code, found(verdict), verdict["executed"], verdict["worlds"]) == (0, [], 3, {"2": 3})
    told = {c["name"]: c["established"] for c in verdict["checks"] if c["established"]}
    assert told == {
        "run_weights_are_the_modes": "84 tokens of 3 optimizer steps on 2 ranks have the weights "
        "of token_mean",
        "run_reduces_as_the_engine": "one parameter's gradient is reduced as engine ddp does",
    }
    same = ("audit", "p", "--mode", "token_mean", "--engine", "ddp")
    short, quiet, full = (
        cli(*same, *options) for options in ((), ("-q",), ("-v", "--color", "always"))
    )
    assert short.out.splitlines()[:3] == [
        "p:probe   recorded · token_mean · engine ddp",
        "PASS  84 tokens of 3 optimizer steps on 2 ranks have the weights of token_mean",
        "  3 checks passed, 1 not applicable · 3 steps, seed 0",
    ]
    assert quiet.out == f"{short.out.splitlines()[1]}\n"
    assert "run_weighs_no_padding" in full.out and "\x1b[1;32mPASS" in full.out
    # The same records under another engine.
    ran = cli("audit", "p", "--mode", "token_mean", "--engine", "sum", "--verify-engine")
    assert ran.code == 1
    assert "every weight is 2 of the mode's" in ran.out
    assert "is 0.5 times the sum of all ranks' own, and engine sum makes it 1" in ran.flat
    # A step as a case for a reducer.
    reducer = tmp_path / "mine.py"
    reducer.write_text(
        "def reduce(losses, batch):\n"
        "    return losses.sum() / batch.num_tokens * batch.dp_size * batch.cp_size\n"
    )
    case = ("--case", "1", "--reducer", "mine.py:reduce", "--mode", "token_mean")
    ran = cli("audit", "p", *case, "--engine", "mean")
    assert ran.code == 0, ran.err
    path = ran.out.split()[2]
    stored = json.loads((tmp_path / path).read_text())
    masks = [sample["mask"] for sample in stored["case"]["step"]["samples"]]
    assert [mask.count("1") for mask in masks] == [3, 4, 3, 1, 3, 4, 3, 2]
    assert stored["case"]["layout"]["micro_batches"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    ran = cli("replay", path, "mine.py:reduce")
    assert (ran.code, ran.out.split()[0]) == (0, "FIXED"), ran.out


WRONG = {
    # way: codes, and the first finding's weight: expected, actual
    "micro-batch means": (["AGV101"], ("1/23", 1 / 16)),
    "scaled twice": (["AGV101"], ("1/23", 2 / 23)),
    "padding": (["AGV603"], ("0", 1 / 32)),
    "a bin dropped": (["AGV601"], ("1/32", 0.0)),
    "counts of the step before": (["AGV604"], ("1/23", 1 / 32)),
    # Each half is a step of its own: of 32 tokens 14 and 18.
    "accumulation off by one": (["AGV604"], ("1/14", 1 / 32)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_loop_is_found(cli: Cli, tmp_path: Path, way: str) -> None:
    codes, weights = WRONG[way]
    said = ("--mode", "token_mean", "--engine", "ddp")
    code, verdict = audited(cli, tmp_path, *said, job=[LOOPS, "ddp", way])
    assert (code, found(verdict)) == (1, codes)
    expected, actual = worst(verdict)
    assert (expected, actual) == (weights[0], pytest.approx(weights[1], rel=1e-6))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("engine", "way"),
    [("fsdp2", ""), ("sum", ""), ("ddp", "a rank without tokens"), ("ddp", "compiled")],
)
def test_a_right_loop_passes(cli: Cli, tmp_path: Path, engine: str, way: str) -> None:
    said = ("--mode", "token_mean", "--engine", engine, "--verify-engine")
    code, verdict = audited(cli, tmp_path, *said, job=[LOOPS, engine, way])
    assert (code, found(verdict)) == (0, []), verdict["checks"]
    assert [c["state"] for c in verdict["checks"]] == ["ok", "ok", "ok", "left out", "ok"]


REFUSED = {
    "--engine ddpp": "did you mean 'ddp'?",
    "--engine train-step": "an audit takes one that only scales and sums",
    "--engine ddp --mode tokenmean": "did you mean 'token_mean'?",
    "--engine ddp --mode constant": "--mode constant needs --divisor L",
    "--engine ddp --policy empty=exclude": "unknown policy question 'empty'",
    "--engine ddp --report htm": "did you mean 'html'?",
    "--engine ddp --case 3": "--case needs --reducer TARGET",
    "--engine ddp --steps often": "steps are chosen as",
}
"""Before the job is run, which may take hours."""


def test_what_cannot_be_audited_is_said(cli: Cli, tmp_path: Path) -> None:
    ran = cli("audit", "--mode", "token_mean", "--engine", "ddp")
    assert (ran.code, "name a folder of records" in ran.err) == (2, True)
    ran = cli("audit", "--mode", "token_mean", "--engine", "ddp", "--", "no-such-program")
    assert (ran.code, "cannot run 'no-such-program'" in ran.err) == (2, True)
    ran = cli("audit", "--at", "trk", "--", "true")
    assert (ran.code, "did you mean 'trl'?" in ran.err) == (2, True)
    ran = cli("audit", "--engine", "ddp", "--", "true")
    assert (ran.code, "holds no records" in ran.err) == (2, True)
    for options, words in REFUSED.items():
        ran = cli("audit", *options.split(), "--", "touch", "ran")
        assert (ran.code, words in ran.err, ran.err.count("\n")) == (2, True, 1), ran
    assert not (tmp_path / "ran").exists()
    ran = cli("audit", "--engine", "ddp", "--", "false")
    assert "the command ended with 1, and none of its ranks recorded anything" in ran.err


PARALLEL = LOOPS.parent / "parallel.py"
SHARED = {
    # how the model is shared, and what is wrong: codes
    ("tensor", ""): [],
    ("tensor", "times the ranks"): ["AGV101"],
    ("pipeline", ""): [],
    ("pipeline", "times the micro-batches"): ["AGV101"],
    ("pipeline", "divided"): ["AGV606"],
}


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "way"), SHARED)
def test_ranks_that_share_a_model(cli: Cli, tmp_path: Path, kind: str, way: str) -> None:
    size = {"tensor": "--tp", "pipeline": "--pp"}[kind]
    said = ("--mode", "token_mean", "--engine", "sum", "--verify-engine", size, "2")
    code, verdict = audited(cli, tmp_path, *said, job=[PARALLEL, kind, way])
    assert (code, found(verdict)) == (bool(way), SHARED[kind, way]), verdict["checks"]
    assert not verdict["warnings"]
    for finding in verdict["findings"]:
        assert finding["replay"][-3:] == [size, "2", "--verify-engine"]


SRUN = """#!{python}
import os, subprocess, sys
def started(rank):
    slurm = {{"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"}}
    return subprocess.Popen(sys.argv[1:], env={{**os.environ, **slurm}})
sys.exit(max(one.wait() for one in [started(0), started(1)]))
"""
NO_GROUP = """import os, torch, aggverify
rank = int(os.environ["SLURM_PROCID"])
theta = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([theta], lr=0.1)
losses = aggverify.probe(theta + rank, torch.ones(3), sample_ids=[rank], lengths=[3])
(losses.sum() / {tokens}).backward()
optimizer.step()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("tokens", "code"), [LATER(6, 0), (3, 1)])
def test_what_srun_starts_is_told_by_its_own_variables(
    cli: Cli, tmp_path: Path, tokens: int, code: int
) -> None:
    """Also before, and without, a process group."""
    srun, job = tmp_path / "srun", tmp_path / "job.py"
    srun.write_text(SRUN.format(python=sys.executable))
    srun.chmod(0o755)
    job.write_text(NO_GROUP.format(tokens=tokens))
    said = ("--mode", "token_mean", "--engine", "sum", "--report", "json")
    ran = cli("audit", *said, "--", srun, sys.executable, job)
    assert ran.code == code, ran
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    [verdict] = document["verdicts"]
    assert verdict["worlds"] == {"2": 1}
