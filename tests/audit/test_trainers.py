"""Real trainers as they are, with packages from PyPI, tiny random models and two processors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.audit.test_audit_command import audited, found, worst
from tests.conftest import ROOT, Cli
from tests.engines.wheels import (
    ACCELERATE,
    DEEPSPEED,
    MEGATRON_CORE,
    RAY,
    fetched,
    installed,
)
from tests.frameworks import wheels

pytestmark = [pytest.mark.network, pytest.mark.exhaustive]  # hundreds of megabytes, many minutes
TRAINERS = Path(__file__).parent / "trainers"


@pytest.fixture
def packages(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts packages on the path of the job."""

    def put(name: str, *wanted: str) -> None:
        folder = Path(pytestconfig.cache.mkdir(f"audit-{name}"))
        path = [str(installed(folder, *wanted)), str(ROOT), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))

    return put


GRPO: list[tuple[str, tuple[str, ...], Sequence[str], str, list[str]]] = [
    # loss type, options, what is asked, mode, codes
    ("grpo", (), ("--mode", "grpo"), "sample_mean", []),
    ("sapo", (), ("--mode", "sample_mean"), "sample_mean", []),
    ("dapo", (), ("--mode", "dapo"), "token_mean", []),
    ("cispo", ("epsilon_high=5.0",), (), "token_mean", []),
    ("vespo", (), ("--mode", "token_mean"), "token_mean", []),
    ("luspo", (), (), "sequence_sum", []),
    ("dr_grpo", (), ("--mode", "dr_grpo", "--divisor", "12"), "constant", []),
    ("bnpo", (), ("--mode", "token_mean"), "token_mean", ["AGV101"]),
    (
        "dapo",
        ("steps_per_generation=4", "max_steps=2"),
        ("--mode", "dapo"),
        "token_mean",
        ["AGV604"],
    ),
]


@pytest.mark.parametrize(
    ("loss", "options", "said", "mode", "codes"), GRPO, ids=[f"{r[0]}{r[1][:1]}" for r in GRPO]
)
def test_trl_grpo(
    cli: Cli,
    tmp_path: Path,
    packages: Any,
    loss: str,
    options: tuple[str, ...],
    said: Sequence[str],
    mode: str,
    codes: list[str],
) -> None:
    packages("trl", "-r", str(TRAINERS / "trl.txt"))
    job = [TRAINERS / "trl_grpo.py", loss, *options]
    code, verdict = audited(cli, tmp_path, "--at", "trl", *said, job=job)
    assert (code, found(verdict), verdict["mode"]) == (bool(codes), codes, mode)
    # 32 completions of at most 12 tokens, the same in every run: 171 and 181 tokens.
    told = [c["established"] for c in verdict["checks"] if c["established"]]
    assert told == (
        [] if codes else [f"352 tokens of 2 optimizer steps on 2 ranks have the weights of {mode}"]
    )
    if loss == "bnpo":  # a micro-batch of 74 tokens: 1 / (74 K)
        assert worst(verdict) == ("1/171", pytest.approx(1 / 148, rel=1e-6))
    if codes == ["AGV604"]:
        [finding] = verdict["findings"]
        assert "2 optimizer steps together, divided by 2 (184 for 176" in finding["diagnosis"]


@pytest.mark.parametrize(
    ("release", "at", "codes"),
    [
        ("trl", "transformers", []),
        # The last release whose loss is averaged in each micro-batch.
        ("transformers-4.45", "cross-entropy", ["AGV101"]),
    ],
)
def test_transformers_trainer(
    cli: Cli, tmp_path: Path, packages: Any, release: str, at: str, codes: list[str]
) -> None:
    packages(release, "-r", str(TRAINERS / f"{release}.txt"))
    said = ("--at", at, "--mode", "token_mean", "--engine", "mean")
    code, verdict = audited(cli, tmp_path, *said, job=[TRAINERS / "hf_trainer.py"])
    assert (code, found(verdict)) == (bool(codes), codes)


@pytest.mark.parametrize(
    ("way", "codes", "shown"),
    [
        ("right", [], None),
        ("forgets K", ["AGV101"], ("1/23", 1 / 46)),
        ("steps too early", ["AGV604"], ("1/14", 1 / 16)),
    ],
)
def test_accelerate_with_deepspeed(
    cli: Cli, tmp_path: Path, packages: Any, way: str, codes: list[str], shown: Any
) -> None:
    packages("deepspeed", *DEEPSPEED, *ACCELERATE)
    said = ("--mode", "token_mean", "--engine", "deepspeed-2")
    job = [TRAINERS / "accelerate_deepspeed.py", way]
    code, verdict = audited(cli, tmp_path, *said, job=job)
    assert (code, found(verdict)) == (bool(codes), codes)
    if shown:
        assert worst(verdict) == (shown[0], pytest.approx(shown[1], rel=1e-6))


@pytest.mark.parametrize(("factor", "codes"), [("1", []), ("2", ["AGV101"])])
def test_deepspeeds_own_scale_is_taken_out(
    cli: Cli, tmp_path: Path, packages: Any, factor: str, codes: list[str]
) -> None:
    packages("deepspeed", *DEEPSPEED, *ACCELERATE)
    said = ("--mode", "token_mean", "--engine", "sum", "--steps", "first 4")
    code, seen = audited(cli, tmp_path, *said, job=[TRAINERS / "deepspeed_scaler.py", factor])
    assert (code, found(seen)) == (bool(codes), codes)
    assert seen["worlds"] == {"2": 4}  # a step that the scaler leaves out ends, too


@pytest.mark.parametrize(("factor", "codes"), [("1", []), ("2", ["AGV101"])])
def test_ray_actors(
    cli: Cli,
    tmp_path: Path,
    packages: Any,
    monkeypatch: pytest.MonkeyPatch,
    factor: str,
    codes: list[str],
) -> None:
    packages("ray", *RAY)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # or it leaves a token in the home folder
    seen = alone(cli, tmp_path, TRAINERS / "ray_actors.py", factor)
    assert found(seen) == codes
    assert seen["worlds"] == {"2": 2}


def alone(cli: Cli, folder: Path, *job: str | Path) -> Any:
    """The verdict of a job that starts its ranks itself."""
    said = ("--mode", "token_mean", "--engine", "sum", "--report", "json")
    ran = cli("audit", *said, "--", sys.executable, *job)
    assert ran.code in (0, 1), ran
    [verdict] = json.loads((folder / ".aggverify" / "verdict.json").read_text())["verdicts"]
    return verdict


@pytest.mark.parametrize(
    ("way", "engine", "codes"),
    [("per-token", "megatron-token-raw", []), ("default", "mean", ["AGV101"])],
)
def test_megatron_core(
    cli: Cli,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    engine: str,
    codes: list[str],
) -> None:
    folder = fetched(Path(pytestconfig.cache.mkdir("megatron-core")), *MEGATRON_CORE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(ROOT))))
    said = ("--at", "megatron", "--mode", "token_mean", "--engine", engine)
    code, verdict = audited(cli, tmp_path, *said, job=[TRAINERS / "megatron_core.py", way])
    assert (code, found(verdict)) == (bool(codes), codes)
    if codes:  # a micro-batch of 4 tokens: 1 / (4 K D)
        assert worst(verdict) == ("1/23", pytest.approx(1 / 16, rel=1e-6))


@pytest.mark.parametrize(
    ("at", "package", "version", "mode"),
    [
        ("verl", "verl", "0.9.1", "token_mean"),
        ("skyrl", "skyrl", "0.4.0", "token_sum"),
        ("openrlhf", "openrlhf", "0.11.2", "token_mean"),
        ("areal", "areal", "1.0.4", "token_mean"),
        ("liger", "liger-kernel", "0.8.5", "sample_mean"),
    ],
)
def test_probe_points(
    cli: Cli, pytestconfig: pytest.Config, at: str, package: str, version: str, mode: str
) -> None:
    folder = wheels.unpacked(Path(pytestconfig.cache.mkdir("wheels")), package, version)
    said = ("--at", at, "--mode", mode, "--engine", "mean")
    ran = cli("audit", *said, "--", sys.executable, TRAINERS / "point.py", at, folder)
    assert ran.code == 0, ran.out
    assert f"10 tokens of 1 optimizer steps on 1 ranks have the weights of {mode}" in ran.out
