"""SkyRL's own reduction code, out of its released wheels, before and after its token-mean fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.choosing import LATER
from tests.conftest import Cli
from tests.frameworks.wheels import unpacked

pytestmark = pytest.mark.network
CANDIDATE = Path(__file__).with_name("skyrl_candidate.py")
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0")
POLICY_LOSSES = Path(__file__).with_name("skyrl_policy_losses.py")


@pytest.fixture(scope="session")
def wheels(pytestconfig: pytest.Config) -> Path:
    """A folder with every version's wheel unpacked; downloaded once, shared by all workers."""
    folder = Path(pytestconfig.cache.mkdir("wheels"))
    return {unpacked(folder, "skyrl", version) for version in VERSIONS}.pop().parent


def check(shell: Cli, wheels: Path, version: str, mode: str, *more: str) -> tuple[int, str]:
    options = ["--mode", mode, *(["--divisor", "16"] if mode == "constant" else []), *more]
    ran = shell("check", CANDIDATE, *options, env={"AGGVERIFY_SKYRL": str(wheels / version)})
    assert ran.code in (0, 1), ran
    return ran.code, " ".join(ran.out.split())


def test_the_old_token_mean_is_found_and_named(shell: Cli, wheels: Path) -> None:
    code, out = check(shell, wheels, "0.1.0", "token_mean", "--exit-first")
    assert code == 1, out
    assert "AGV202 Result depends on the split into micro-batches" in out
    assert "the mean over micro-batches of each one's own token mean" in out
    assert "SkyRL before #1296" in out


@pytest.mark.parametrize("mode", [LATER("sample_mean"), LATER("constant")])
def test_the_old_reducer_is_right_in_its_other_modes(shell: Cli, wheels: Path, mode: str) -> None:
    code, out = check(shell, wheels, "0.1.0", mode, "--profile", "quick")
    assert code == 0, out


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        LATER("0.2.0", "token_mean"),
        LATER("0.2.0", "sample_mean"),
        LATER("0.2.0", "constant"),
        ("0.4.0", "token_mean"),
        LATER("0.4.0", "prompt_mean"),
        LATER("0.3.0", "token_mean"),
        LATER("0.3.0", "sample_mean"),
        LATER("0.3.0", "constant"),
        LATER("0.3.0", "prompt_mean"),
    ],
)
def test_the_fixed_version_conforms(shell: Cli, wheels: Path, version: str, mode: str) -> None:
    older = ("--profile", "quick") if version == "0.2.0" else ()
    code, out = check(shell, wheels, version, mode, *older)
    assert code == 0, out
    assert f"PASS every token has its {mode} weight" in out


@pytest.mark.parametrize("version", [LATER("0.1.0"), LATER("0.3.0")])
def test_the_mean_over_micro_batches_holds_for_a_size_that_is_said(
    shell: Cli, wheels: Path, version: str
) -> None:
    code, out = check(shell, wheels, version, "token_mean_legacy", "--micro-batch-size", "2")
    assert code == 0, out
    assert "holds for 2 samples in each, dealt in order, and no other size" in out
    unsaid = shell(
        *("check", CANDIDATE, "--mode", "token_mean_legacy"),
        env={"AGGVERIFY_SKYRL": str(wheels / version)},
    )
    assert unsaid.code == 2, unsaid
    assert "--micro-batch-size B" in unsaid.err


@pytest.mark.exhaustive
def test_boundaries_of_prompts_that_leave_out_rows_or_overlap_are_taken(
    shell: Cli, wheels: Path
) -> None:
    more = ("--claim", "validates-arguments")
    code, out = check(shell, wheels, "0.3.0", "prompt_mean", *more)
    assert code == 1, out
    for accepted in ("rows that no prompt boundary covers", "prompt boundaries that overlap"):
        assert accepted in out
    assert "prompt_boundaries None" not in out


@pytest.mark.exhaustive
def test_masked_nan_is_found_when_asked_for(shell: Cli, wheels: Path) -> None:
    code, out = check(shell, wheels, "0.3.0", "token_mean", "--claim", "poison")
    assert code == 1, out
    assert "AGV123 NaN or infinity behind the mask reaches the loss" in out
    assert "SkyRL #1635" in out


def test_a_mode_a_version_does_not_have_is_refused(shell: Cli, wheels: Path) -> None:
    ran = shell(
        *("check", CANDIDATE, "--mode", "prompt_mean"),
        env={"AGGVERIFY_SKYRL": str(wheels / "0.2.0")},
    )
    assert ran.code == 2, ran
    assert "offers token_mean, sample_mean, constant" in ran.err


@pytest.mark.parametrize(
    ("name", "mode", "codes"),
    [
        LATER("kl_cov", "token_mean", "AGV215 AGV124"),
        ("kl_cov", "nonlinear", "AGV202 AGV124"),
        LATER("clip_cov", "nonlinear", "AGV212 AGV202 AGV203 AGV124"),
    ],
)
def test_policy_losses_that_select_by_value(
    shell: Cli, wheels: Path, name: str, mode: str, codes: str
) -> None:
    """What they select depends on the micro-batch at hand; of KL there is none at ratio 1, where
    every token has its weight. At other ratios the KL is that of other tokens in each split."""
    said = ("--convention", "policy-loss", "--engine", "sum", "--profile", "quick", "--world", "2")
    said = (*said, "--without", "context-parallel", "--mode", mode)
    where = {"AGGVERIFY_SKYRL": str(wheels / "0.3.0")}
    ran = shell("check", f"{POLICY_LOSSES}:{name}", *said, env=where)
    assert ran.code == 1, ran
    assert set(re.findall(r"^(?:FAIL|HAZARD) +(AGV\d+)", ran.out, re.MULTILINE)) == set(
        codes.split()
    )
    if mode == "nonlinear":
        assert "AGV212" in ran.out.partition("same cause")[2].partition("reproduce")[0]
    else:
        assert "same cause   AGV212" in ran.out
        assert "what is made of values behind the mask is multiplied by 0" in " ".join(
            ran.out.split()
        )
