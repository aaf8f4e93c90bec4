"""``torchrun -m aggverify check``: several agents, here on one machine, and one verdict."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggverify.cli import joined
from tests.cli.test_examples import BROKEN, CORRECT
from tests.conftest import EXAMPLES, ROOT, Cli
from tests.waiting import wait_until

RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"
LITTLE = ("--profile", "quick", "--max-examples", "2", "--report", "json")
_MARK = "AGGVERIFY_TEST_MARK"

WAITS = """
import torch
import torch.distributed as dist

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}


def reduce(losses, batch):
    mask = torch.cat(batch.local_masks)
    if batch.cp_size > 1 and not int(mask.sum()):
        return losses.sum() * 0
    if batch.cp_size > 1:
        dist.all_reduce(torch.ones(1), group=batch.cp_group)
    return torch.where(mask.bool(), losses, 0.0).sum() / max(int(batch.num_tokens), 1)
"""
"""Ranks without a token leave the others waiting."""
CALLED = "called"


def marked(reducer: Path, folder: Path) -> Path:
    """A copy that leaves a file in ``folder`` when it is called."""
    mark = f"""
_unmarked = reduce


def reduce(losses, batch):
    open({str(folder / CALLED)!r}, "w").close()
    return _unmarked(losses, batch)
"""
    copy = folder / reducer.name
    copy.write_text(reducer.read_text() + mark)
    return copy


@dataclass(frozen=True, slots=True)
class Agent:
    """A launcher, or one process of a world without one; what it writes goes to files."""

    process: subprocess.Popen[bytes]
    files: Path
    mark: str

    def judges(self) -> bool:
        """Whether a reducer that was marked has been called; or the process has ended."""
        return (self.files.parent / CALLED).exists() or self.process.poll() is not None

    @property
    def out(self) -> str:
        return (self.files / "out").read_text()

    @property
    def err(self) -> str:
        return (self.files / "err").read_text()

    def code(self) -> int:
        """Once it has ended."""
        return self.process.wait()


Start = Callable[..., Agent]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a Python program in an empty folder; it leaves no process, however it has ended."""
    mark, started = uuid.uuid4().hex, list[Agent]()
    (tmp_path / "tmp").mkdir()

    def run(
        *arguments: object, env: Mapping[str, str] | None = None, inside: Sequence[str] = ()
    ) -> Agent:
        files = tmp_path / f"agent{len(started)}"
        files.mkdir()
        with (files / "out").open("wb") as out, (files / "err").open("wb") as err:
            process = subprocess.Popen(
                [*inside, sys.executable, *map(str, arguments)],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "TMPDIR": str(tmp_path / "tmp"),
                    "OMP_NUM_THREADS": "1",
                    _MARK: mark,
                    **(env or {}),
                },
            )
        started.append(Agent(process, files, mark))
        return started[-1]

    yield run
    left = set() if wait_until(lambda: not _living(mark), seconds=60) else _living(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    for each in started:
        each.process.wait()
    assert not left
    # Of torchrun's own, which leaves its folders when it is killed, nothing is said.
    assert not [path for path in (tmp_path / "tmp").iterdir() if "aggverify" in path.name]


def _living(mark: str) -> set[int]:
    """Processes with the mark in their environment, wherever they have come from."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


def _two(start: Start, *arguments: object, each: int = 2) -> list[Agent]:
    """Two agents with so many processes each, the first with rank 0."""
    where = ("--master-addr", "127.0.0.1", "--master-port", _port())
    many = ("-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", each, *where)
    command = ("-m", "aggverify", "check", *arguments)
    return [start(*many, "--node-rank", node, *command) for node in (0, 1)]


def _said(document: Path) -> tuple[int, set[tuple[str, ...]]]:
    """Exit code and findings of a verdict document: check, code, factor and bugs."""
    found = json.loads(document.read_text())
    return found["exit"], {
        (each["check"], each["code"], str(each["factor"]), str(each["bugs"]))
        for verdict in found["verdicts"]
        for each in verdict["findings"]
    }


def _same_as_the_pool(start: Start, cli: Cli, folder: Path, target: Path) -> None:
    first, second = _two(start, target, *LITTLE)
    assert (first.code() == 0) is (second.code() == 0)
    usual = cli("check", target, *LITTLE, "--world", "4", "--report-dir", "pool")
    told = _said(folder / ".aggverify" / "verdict.json")
    assert told == _said(folder / "pool" / "verdict.json"), first.out + first.err
    assert told[0] == usual.code
    assert (first.code() == 0) is (usual.code == 0)
    assert second.out == ""
    environment = json.loads((folder / ".aggverify" / "verdict.json").read_text())["environment"]
    assert environment["transport"] == "tcp between 4 launched processes on one machine"


EVERY = [*CORRECT, *(EXAMPLES / "broken" / name for name in BROKEN)]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(
            path,
            id=f"{path.parent.name}-{path.stem}",
            # That of one rank is made small in no time.
            marks=pytest.mark.thorough
            if path.stem == "hardcoded_divisor"
            else pytest.mark.exhaustive,
        )
        for path in EVERY
    ],
)
@pytest.mark.exhaustive
def test_two_agents_say_what_the_pool_says(
    start: Start, cli: Cli, tmp_path: Path, target: Path
) -> None:
    _same_as_the_pool(start, cli, tmp_path, target)


@pytest.mark.exhaustive
def test_two_agents_find_ranks_that_wait_for_good(start: Start, cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "waits.py"
    target.write_text(WAITS)
    _same_as_the_pool(start, cli, tmp_path, target)


ALONE = """
import os, time
import torch
import torch.distributed as dist

AGGVERIFY = {{"mode": "token_mean", "engine": "sum"}}


def reduce(losses, batch):
    dist.all_reduce(torch.ones(1))  # rank 0 has issued one, however late it began
    if dist.get_rank() == 1:
        {does}
    dist.all_reduce(torch.ones(1))
    mask = torch.cat(batch.local_masks)
    return torch.where(mask.bool(), losses, 0.0).sum() / max(int(batch.num_tokens), 1)
"""
"""Rank 1 does not come to the second collective, which the others wait in."""


@pytest.mark.parametrize(
    ("does", "kind", "said"),
    [
        pytest.param(
            "time.sleep(600)",
            "blocked",
            "rank 1 sleeps or waits outside any collective, for good",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "os._exit(3)", "died", "rank 1 exited with status 3", marks=pytest.mark.thorough
        ),
    ],
)
def test_what_stops_a_rank_is_told_with_rank_collective_and_stack(
    start: Start, tmp_path: Path, does: str, kind: str, said: str
) -> None:
    target = tmp_path / "alone.py"
    target.write_text(ALONE.format(does=does))
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    agent = start(*run, "-m", "aggverify", "check", target, *LITTLE)
    assert agent.code() == 1
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    faults = [f["fault"] for v in document["verdicts"] for f in v["findings"] if f["fault"]]
    fault, *_ = (each for each in faults if each["kind"] == kind)
    assert (fault["rank"], fault["size"], fault["message"]) == (1, 2, said)
    assert dict(fault["traces"])[0][-1]["operation"] == "all_reduce"
    if kind == "blocked":
        assert dict(fault["inside"])[0]["operation"] == "all_reduce"
        lines = [line for stack in dict(fault["stacks"])[1] for _, line, *_ in stack["frames"]]
        assert 1 + target.read_text().splitlines().index(f"        {does}") in lines


@pytest.mark.thorough
def test_when_an_agent_is_killed_there_is_a_sentence_and_nothing_is_left(
    start: Start, tmp_path: Path
) -> None:
    options = ("--mode", "token_mean", "--engine", "sum")
    first, second = _two(start, marked(RIGHT, tmp_path), *LITTLE, *options, each=1)
    wait_until(first.judges)
    second.process.kill()
    assert first.code() == 1
    assert "exitcode  : 2" in first.err, first.err
    assert first.err.count("aggverify: error:") == 1
    assert "aggverify: error: the process of rank " in first.err
    document = json.loads((first.files.parent / ".aggverify" / "verdict.json").read_text())
    assert document["exit"] == 2
    assert ", of 2 launched, is gone: " in document["error"]


@pytest.mark.exhaustive
def test_what_is_wrong_is_said_once_and_not_again_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "syntax.py").write_text("def reduce(losses, batch:\n")
    run = ("-m", "torch.distributed.run", "--nproc-per-node", 2, "--max-restarts", 1)
    agent = start(*run, "--master-port", _port(), "-m", "aggverify", "check", "syntax.py")
    assert agent.code() == 1
    assert agent.err.count("aggverify: error:") == 2
    assert agent.err.count("aggverify: error: syntax error in syntax.py, line 1") == 1
    assert agent.err.count("aggverify: error: torchrun has started this again") == 1
    assert agent.out == ""


def _process_of(rank: int, mark: str) -> int | None:
    """The process that torchrun has started for a rank, if it is there."""
    for pid in _living(mark):
        with contextlib.suppress(OSError):
            environment = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
            command = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in environment and b"check" in command:
                return pid
    return None


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [1, 0])
def test_all_that_is_started_again_goes_on_where_it_was(
    start: Start, cli: Cli, tmp_path: Path, rank: int
) -> None:
    target = marked(EXAMPLES / "broken" / "hardcoded_divisor.py", tmp_path)
    run = ("-m", "torch.distributed.run", "--nproc-per-node", 2, "--max-restarts", 1)
    agent = start(*run, "--master-port", _port(), "-m", "aggverify", "check", target, *LITTLE)
    wait_until(agent.judges)
    killed = _process_of(rank, agent.mark)
    assert killed is not None, agent.err
    os.kill(killed, signal.SIGKILL)
    assert agent.code() == 1
    assert "all were started again: " in agent.out, agent.out + agent.err
    usual = cli("check", target, *LITTLE, "--world", "2", "--report-dir", "pool")
    told, alone = (
        json.loads((tmp_path / folder / "verdict.json").read_text())
        for folder in (".aggverify", "pool")
    )
    assert usual.code == told["exit"] == 1
    assert _said(tmp_path / ".aggverify" / "verdict.json") == _said(tmp_path / "pool/verdict.json")
    [[one], [other]] = told["verdicts"], alone["verdicts"]
    assert one["executed"] == other["executed"], "what is taken over counts, and once"
    ran = [[(c["name"], c["cases"]) for c in v["checks"]] for v in (one, other)]
    assert ran[0] == ran[1]


@pytest.mark.exhaustive
def test_one_agent_by_rendezvous(start: Start, tmp_path: Path) -> None:
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    agent = start(*run, "-m", "aggverify", "check", RIGHT, *LITTLE)
    assert agent.code() == 0, agent.err
    assert agent.out.count("its token_mean weight") == 1
    assert "AGVW19" in agent.out
    assert "those of more than 2 were left out" in " ".join(agent.out.split())
    assert _said(tmp_path / ".aggverify" / "verdict.json") == (0, set())


@pytest.fixture
def machines() -> Iterator[list[list[str]]]:
    """How to run something on each of two that share a network and no loopback interface."""
    name = f"av{uuid.uuid4().hex[:8]}"
    spaces = [f"{name}{n}" for n in (0, 1)]
    commands = [f"netns add {space}" for space in spaces]
    commands.append(f"link add {spaces[0]} type veth peer name {spaces[1]}")
    for n, space in enumerate(spaces):
        commands += [
            f"link set {space} netns {space}",
            f"-n {space} addr add 10.77.0.{n + 1}/24 dev {space}",
            f"-n {space} link set {space} up",
            f"-n {space} link set lo up",
        ]
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        yield [["ip", "netns", "exec", space] for space in spaces]
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces can be made here: {error}")
    finally:
        for space in spaces:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", space], capture_output=True)


@pytest.mark.exhaustive
def test_two_machines(start: Start, tmp_path: Path, machines: list[list[str]]) -> None:
    target = tmp_path / "waits.py"
    target.write_text(WAITS)
    run = ("-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1)
    where = ("--master-addr", "10.77.0.1", "--master-port", 29500)
    command = ("-m", "aggverify", "check", target, *LITTLE)
    agents = [
        start(*run, *where, "--node-rank", n, *command, inside=inside)
        for n, inside in enumerate(machines)
    ]
    assert [agent.code() for agent in agents] == [1, 1]
    assert "AGV404" in agents[0].out, agents[0].err
    document = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    transport = "tcp between 2 launched processes on 2 machines"
    assert document["environment"]["transport"] == transport, agents[0].err
    assert document["exit"] == 1


@pytest.mark.exhaustive
def test_under_srun_the_first_process_has_the_verdicts_exit_code(start: Start) -> None:
    target, port = EXAMPLES / "broken" / "hardcoded_divisor.py", str(_port())
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "SLURM_STEP_NUM_TASKS": "2"}
    command = ("-m", "aggverify", "check", target, *LITTLE)
    tasks = [start(*command, env={**where, "SLURM_PROCID": str(n)}) for n in (0, 1)]
    assert [task.code() for task in tasks] == [1, 1], tasks[0].err
    assert "AGV101" in tasks[0].out
    assert tasks[1].out == tasks[1].err == ""


@pytest.mark.exhaustive
def test_a_process_of_srun_that_is_killed(start: Start, tmp_path: Path) -> None:
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(_port()), "SLURM_STEP_NUM_TASKS": "3"}
    command = ("-m", "aggverify", "check", marked(RIGHT, tmp_path), *LITTLE)
    tasks = [start(*command, env={**where, "SLURM_PROCID": str(n)}) for n in range(3)]
    wait_until(tasks[0].judges)
    tasks[1].process.kill()
    assert [task.code() for task in tasks] == [2, -signal.SIGKILL, 2], tasks[0].err
    assert "error: the process of rank 1, of 3 launched, is gone: " in tasks[0].err


def test_srun_without_an_address_is_told_by_the_first(cli: Cli) -> None:
    first, second = (
        cli("check", RIGHT, env={"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(n)})
        for n in (0, 1)
    )
    assert first.code == second.code == 2
    assert "error: srun has started 2 of this, which need MASTER_ADDR" in first.err
    assert (first.out, second.out, second.err) == ("", "", "")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["replay", "x"], "launched several times there is only `check`, not `replay`"),
        ([], "launched several times there is only `check`, not nothing"),
        (["check", "x.py"], ""),
    ],
)
def test_what_is_refused(arguments: list[str], why: str) -> None:
    assert joined.refused(arguments).startswith(why)
    assert bool(joined.refused(arguments)) is bool(why)


def test_a_sandbox_is_not_for_launched_ranks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_hosts(began: float, command: Callable[[joined.CommandRun], object]) -> object:
        return command(joined.CommandRun(began, object()))  # type: ignore[arg-type]

    monkeypatch.setattr(joined, "run", with_hosts)
    ran = cli("check", RIGHT, "--sandbox")
    assert ran.code == 2
    assert "error: --sandbox is for ranks that are started here, not by torchrun" in ran.err
