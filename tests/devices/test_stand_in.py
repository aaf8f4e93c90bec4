"""``--backend`` from the command line to every rank, with a stand-in for the driver only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.choosing import LATER
from tests.conftest import EXAMPLES, Cli, Ran

STAND_IN = Path(__file__).parent / "stand_in"
RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"
BROKEN = EXAMPLES / "broken" / "micro_batch_token_mean.py"
BRIEF = ("--profile", "quick", "--max-examples", "2", "--report", "json")

pytestmark = pytest.mark.usefixtures("own_launchers")


class Machine:
    """With so many devices; what its ranks have settled on."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self._cli, self._folder, self._log = cli, folder, folder / "ranks.txt"

    def __call__(self, devices: int, *arguments: str | Path) -> Ran:
        self._log.write_text("")
        there = {
            "PYTHONPATH": str(STAND_IN),
            "STAND_IN_DEVICES": str(devices),
            "STAND_IN_LOG": str(self._log),
        }
        return self._cli(*arguments, env=there)

    @property
    def ranks(self) -> set[tuple[int, int, str, str]]:
        """Size of the world, number, device, backend of all that were settled on a device."""
        lines = (line.split() for line in self._log.read_text().splitlines())
        return {(int(size), int(rank), device, name) for size, rank, device, name in lines}

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self._folder / ".aggverify" / "verdict.json").read_text()
        )
        return found


@pytest.fixture
def machine(cli: Cli, tmp_path: Path) -> Machine:
    return Machine(cli, tmp_path)


def warned(document: dict[str, Any]) -> dict[str, str]:
    [verdict] = document["verdicts"]
    return {warning["code"]: warning["detail"] for warning in verdict["warnings"]}


@pytest.mark.thorough
def test_ranks_share_devices_where_collectives_are_staged(machine: Machine) -> None:
    ran = machine(2, "check", RIGHT, "--backend", "cuda+gloo", "--world", "4", *BRIEF)
    assert ran.code == 0, ran
    assert {rank for rank in machine.ranks if rank[0] == 4} == {
        (4, rank, f"cuda:{rank % 2}", "cuda+gloo") for rank in range(4)
    }
    assert {name for *_, name in machine.ranks} == {"cuda+gloo"}
    environment = machine.document["environment"]
    assert environment["backend"] == "cuda+gloo"
    assert environment["transport"] == "tcp, staged through the processor's memory"
    told = warned(machine.document)
    assert told["AGVW04"] == "gloo from CUDA tensors, staged, carried every collective"
    assert "AGVW19" not in told


@pytest.mark.thorough
def test_each_rank_has_a_device_of_its_own_under_nccl(machine: Machine) -> None:
    ran = machine(2, "check", RIGHT, "--backend", "nccl", *BRIEF)
    assert ran.code == 0, ran
    assert {rank[:3] for rank in machine.ranks} == {
        (size, rank, f"cuda:{rank}") for size in (1, 2) for rank in range(size)
    }
    told = warned(machine.document)
    assert "AGVW04" not in told
    why = "each rank has its own GPU, and there are 2"
    assert told["AGVW19"] == f"those of more than 2 were left out; {why}"


@pytest.mark.thorough
def test_on_one_device_nccl_joins_one_rank_and_says_so(machine: Machine) -> None:
    ran = machine(1, "check", RIGHT, "--backend", "nccl", *BRIEF)
    assert ran.code == 0, ran
    assert {rank[:3] for rank in machine.ranks} == {(1, 0, "cuda:0")}
    told = warned(machine.document)
    assert told["AGVW04"] == "NCCL joined one rank: nothing went from one to another"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("devices", "world", "chosen"), [(2, 2, "nccl"), LATER(2, 3, "cuda+gloo"), (0, 2, "gloo")]
)
def test_auto_is_the_first_there_is_enough_for(
    machine: Machine, devices: int, world: int, chosen: str
) -> None:
    ran = machine(devices, "check", RIGHT, "--backend", "auto", "--world", str(world), *BRIEF)
    assert ran.code == 0, ran
    assert machine.document["environment"]["backend"] == chosen
    assert {name for *_, name in machine.ranks} == ({chosen} - {"gloo"})


@pytest.mark.thorough
def test_a_device_is_asked_for_by_its_kind(machine: Machine) -> None:
    ran = machine(1, "check", RIGHT, "--device", "cuda", "--world", "2", *BRIEF)
    assert ran.code == 0, ran
    assert {name for *_, name in machine.ranks} == {"cuda+gloo"}
    ran = machine(1, "check", RIGHT, "--backend", "auto", "--device", "cpu", "--world", "2", *BRIEF)
    assert ran.code == 0, ran
    assert machine.ranks == set()


@pytest.mark.exhaustive
def test_a_case_is_run_again_on_what_it_was_found_on(machine: Machine, tmp_path: Path) -> None:
    ran = machine(1, "check", BROKEN, "--backend", "cuda+gloo", "--world", "2", *BRIEF)
    assert ran.code == 1, ran
    case = min((tmp_path / ".aggverify" / "cases").glob("*.json"))
    assert json.loads(case.read_text())["claim"]["backend"] == "cuda+gloo"
    again = machine(1, "replay", case, BROKEN)
    assert again.code == 1, again
    assert {name for *_, name in machine.ranks} == {"cuda+gloo"}
    without = machine(0, "replay", case, BROKEN)
    assert without.code == 2, without
    assert "the cuda+gloo backend needs a CUDA device, and torch finds none here" in without.err
    assert machine.ranks == set()


@pytest.mark.thorough
def test_what_is_no_backend_here_is_said(machine: Machine) -> None:
    for name, why in (
        ("mpi", "accepted: auto, gloo, nccl, cuda+gloo"),
        ("nccl", "the nccl backend needs a CUDA device, and torch finds none here"),
    ):
        ran = machine(0, "check", RIGHT, "--backend", name)
        assert ran.code == 2, ran
        assert why in ran.err
    for said, why in (
        ("--device cuda", "the cuda+gloo backend needs a CUDA device, and torch finds none here"),
        ("--device tpu", "unknown device 'tpu'; did you mean 'cpu'? (accepted: cpu, cuda)"),
        ("--backend nccl --device cpu", "--backend nccl is for tensors on cuda, not cpu"),
        ("--backend gloo --device cuda", "--backend gloo is for tensors on cpu, not cuda"),
        ("--backend nccl --sandbox", "with --backend gloo, not --backend nccl"),
        ("--device cuda --sandbox", "with --backend gloo, not --device cuda"),
    ):
        ran = machine(0, "check", RIGHT, *said.split())
        assert ran.code == 2, ran
        assert why in ran.err


@pytest.mark.parametrize(
    ("backend", "seen"),
    [("gloo", "-1"), pytest.param("cuda+gloo", "0", marks=pytest.mark.thorough)],
)
def test_ranks_on_processors_see_no_device(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, backend: str, seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    target = f"{STAND_IN.parent / 'faulty.py'}:tells_what_it_sees"
    ran = machine(1, "check", target, "--backend", backend, *BRIEF)
    assert f"sees {seen}, {seen}" in ran.out
