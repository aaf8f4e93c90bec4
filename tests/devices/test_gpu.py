"""On CUDA devices themselves. Skipped, with the reason, where there are none."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from aggverify.world import CUDA_GLOO, NCCL, Backend, Pool
from aggverify.world.faults import Unusable
from tests.conftest import EXAMPLES, Cli

HERE = Path(__file__).parent
BRIEF = ("--profile", "quick", "--max-examples", "4", "--report", "json")
STAGED = ("--backend", CUDA_GLOO.name, "--world", "4")
ALONE = ("--backend", NCCL.name, "--world", "1")
EACH = sorted((EXAMPLES / "native" / "sum").glob("*.py"))

pytestmark = pytest.mark.gpu


def needs(backend: Backend, ranks: int, pool: Pool) -> None:
    try:
        devices = pool._launcher.require(backend)
    except Unusable as error:
        pytest.skip(str(error))
    if not backend.fits(ranks, devices):
        pytest.skip(f"{ranks} ranks need {ranks} CUDA devices, and torch finds {devices}")


@pytest.mark.parametrize("how", [STAGED, ALONE], ids=["staged", "alone"])
@pytest.mark.parametrize("path", EACH, ids=lambda path: path.stem)
def test_right_ones_conform(
    cli: Cli, shared_pool: Pool, path: Path, how: tuple[str, ...], tmp_path: Path
) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    ran = cli("check", path, *how, *BRIEF)
    assert ran.code == 0, ran
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    assert document["environment"]["backend"] == how[1]


@pytest.mark.gpu2
def test_two_ranks_over_nccl(cli: Cli, shared_pool: Pool) -> None:
    needs(NCCL, 2, shared_pool)
    ran = cli("check", EACH[0], "--backend", NCCL.name, "--world", "2", *BRIEF)
    assert ran.code == 0, ran
    assert "AGVW04" not in ran.out
    broken = EXAMPLES / "broken" / "micro_batch_token_mean.py"
    ran = cli("check", broken, "--backend", NCCL.name, "--world", "2", *BRIEF)
    assert ran.code == 1, ran


def test_what_is_wrong_on_such_a_device_only_is_found_there(cli: Cli, shared_pool: Pool) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    target = f"{HERE / 'reducers.py'}:local_means_on_cuda"
    assert cli("check", target, *BRIEF).code == 0
    ran = cli("check", target, *STAGED, *BRIEF)
    assert ran.code == 1, ran
    assert "AGV202" in ran.out


def test_sums_in_any_order_are_the_same_again(cli: Cli, shared_pool: Pool) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    ran = cli("check", f"{HERE / 'reducers.py'}:scattered_on_the_device", *STAGED, *BRIEF)
    assert ran.code == 0, ran


def test_a_kernel_in_triton(cli: Cli, shared_pool: Pool) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    ran = cli("check", f"{HERE / 'fused.py'}:in_one_kernel", *STAGED, *BRIEF)
    assert ran.code == 0, ran


@pytest.mark.parametrize(("engine", "how"), [("ddp", STAGED), ("ddp", ALONE), ("fsdp2", ALONE)])
def test_real_engines_on_the_device(
    cli: Cli, shared_pool: Pool, engine: str, how: tuple[str, ...]
) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    ran = cli("check", path, "--engine", engine, *how, *BRIEF)
    assert ran.code == 0, ran


FAULTY = HERE / "faulty.py"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("reads_beyond", "AGV401", "device-side assert"),
        ("takes_all_memory", "AGV401", "out of memory"),
        ("left_alone", "AGV402", "all_reduce"),
        ("never_done", "AGV402", ""),
    ],
)
def test_what_a_device_does_not_get_done(
    cli: Cli, shared_pool: Pool, name: str, code: str, words: str
) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    ran = cli("check", f"{FAULTY}:{name}", *STAGED[:-1], "2", *BRIEF)
    assert ran.code == 1, ran
    assert code in ran.out
    assert words in ran.out


def test_work_in_a_stream_of_its_own(cli: Cli, shared_pool: Pool) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    ran = cli("check", f"{FAULTY}:in_another_stream", *STAGED, *BRIEF)
    assert ran.code == 0, ran


def test_autocast_left_on_for_the_device_alone(cli: Cli, shared_pool: Pool) -> None:
    needs(CUDA_GLOO, 1, shared_pool)
    ran = cli("check", f"{FAULTY}:left_in_bfloat16", *STAGED, *BRIEF)
    assert ran.code == 0, ran
    assert "CUDA autocast" in ran.out
