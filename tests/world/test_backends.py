"""A backend and its device are data; no process that forks ranks touches CUDA."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import aggverify.world
from aggverify.errors import InputError
from aggverify.execution.limits import LAUNCHED, RankKind
from aggverify.world import (
    CUDA_GLOO,
    GLOO,
    NCCL,
    Backend,
    Fault,
    Job,
    Options,
    Pool,
    PoolError,
    TemplateFailure,
)
from aggverify.world.backends import backend
from aggverify.world.in_flight import Task, WorldKey
from aggverify.world.launcher import ForkServer
from aggverify.world.link import open_link
from aggverify.world.process_inspector import LocalInspector
from aggverify.world.processes import look
from aggverify.world.state import Guard
from aggverify.world.world import World
from tests.world.conftest import HERE, ROOT

STAND_IN = """
import sys, types
torch = types.ModuleType("torch")
torch.__version__ = "9.9"
torch.distributed = dist = types.ModuleType("torch.distributed")
dist.is_available = lambda: True
dist.is_backend_available = lambda name: name in {backends!r}
torch.cuda = types.SimpleNamespace(device_count=lambda: {devices}, is_initialized=lambda: {runs})
sys.modules |= {{"torch": torch, "torch.distributed": dist}}
"""


def said(code: str, *, backends: tuple[str, ...] = (), devices: int = 0, runs: bool = False) -> str:
    """What a program prints that has a stand-in for torch."""
    whole = STAND_IN.format(backends=backends, devices=devices, runs=runs) + code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", whole],
        check=True, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def usable(name: str, **built: object) -> tuple[int, str | None]:
    code = "from aggverify.world import backends, devices\nfrom dataclasses import astuple\n"
    printed = f"print(astuple(devices.usable(backends.backend({name!r}))))"
    found: tuple[int, str | None] = ast.literal_eval(said(code + printed, **built))  # type: ignore[arg-type]
    return found


def test_every_rank_has_a_device() -> None:
    assert [GLOO.device_of(rank, 0) for rank in (0, 3)] == ["cpu", "cpu"]
    assert [NCCL.device_of(rank, 4) for rank in (0, 3)] == ["cuda:0", "cuda:3"]
    assert [CUDA_GLOO.device_of(rank, 2) for rank in (0, 3)] == ["cuda:0", "cuda:1"]
    assert [GLOO.fits(8, 0), CUDA_GLOO.fits(8, 1), CUDA_GLOO.fits(1, 0)] == [True, True, False]
    assert [NCCL.fits(8, 8), NCCL.fits(2, 1)] == [True, False]
    for joined_by, devices in ((NCCL, 3), (CUDA_GLOO, 0)):
        with pytest.raises(RuntimeError, match=f"rank 3 has no own device: there are {devices}"):
            joined_by.device_of(3, devices)


def test_a_backend_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="no backend 'mpi'; there are gloo, nccl, cuda\\+gloo"):
        backend("mpi")
    with pytest.raises(InputError, match="backend must be a Backend, not 'nccl'"):
        Options(backend="nccl")  # type: ignore[arg-type]


def test_why_a_backend_is_unusable() -> None:
    assert usable("gloo", backends=("gloo",)) == (0, None)
    assert usable("gloo") == (0, "torch 9.9 was built without the gloo backend")
    assert usable("cuda+gloo") == (0, "torch 9.9 was built without the gloo backend")
    assert usable("nccl", backends=("gloo",)) == (
        0,
        "torch 9.9 was built without the nccl backend",
    )
    for name, group in (("nccl", "nccl"), ("cuda+gloo", "gloo")):
        none = f"the {name} backend needs a CUDA device, and torch finds none here"
        assert usable(name, backends=(group,)) == (0, none)
        assert usable(name, backends=(group,), devices=2) == (2, None)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there may be a CUDA device")
def test_a_pool_that_cannot_be_had_says_why() -> None:
    reason = "without the nccl backend|needs a CUDA device"
    with Pool(Options(backend=NCCL)) as pool, pytest.raises(PoolError, match=reason):
        pool.template("handlers:Echo", {}, paths=[HERE])


def test_a_process_in_which_cuda_runs_does_not_fork() -> None:
    code = """
from aggverify.world import forking
try:
    forking.fork()
except RuntimeError as error:
    print(error)
"""
    assert said(code, runs=True) == "CUDA was initialised in a process that forks ranks"


def test_there_is_no_other_way_to_fork() -> None:
    folder = Path(aggverify.world.__file__).parent
    forks = [path.name for path in folder.glob("*.py") if "os.fork(" in path.read_text()]
    assert forks == ["forking.py"]


def test_an_import_that_initialises_cuda_is_told(pool: Pool) -> None:
    made = pool.template("handlers:FailsToStart", {"act": "initialise_cuda"}, paths=[HERE])
    assert isinstance(made, TemplateFailure)
    assert made.kind == "cuda"
    assert made.message.startswith("the import initialises CUDA, which ranks forked after it")


@contextmanager
def asleep(joined_by: Backend, known: set[frozenset[tuple[str, int]]]) -> Iterator[World]:
    """A world of one rank, which sleeps in its first job."""
    link, fds = open_link(0)
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    while look([process.pid]).running:
        time.sleep(0.01)
    link.pid = process.pid
    try:
        limits = Options(silence=9.0, silence_after=4.0)
        inspector = LocalInspector(os.getpid())
        yield World(
            1, WorldKey(1, joined_by), [link], limits, born=0.0, inspector=inspector, known=known
        )
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        link.close()
        for fd in fds[:2]:
            os.close(fd)


def looks_until_blocked(
    joined_by: Backend, known: set[frozenset[tuple[str, int]]] | None = None
) -> list[float]:
    """When a world is looked at that began at 0.0, until it is found blocked."""
    with asleep(joined_by, set() if known is None else known) as world:
        world.advance(0.0)
        key = world.key
        waiting = deque([Task(lambda outcome: None, Job(1, {}), key, b"{}")])
        world.feed(waiting, 0.0, one_by_one=True)
        times = [0.0]
        while not (found := world.advance(times[-1])):
            due = world.due(times[-1])
            assert due is not None
            times.append(times[-1] + due + 0.001)
        [(_, outcome)] = found
        assert isinstance(outcome, Fault)
        assert outcome.kind == "blocked"
        return times


def test_ranks_that_spin_while_they_wait_are_blocked_after_a_silence_only() -> None:
    # Threads and processor time tell nothing there: not looked at before the limit.
    *before, last = looks_until_blocked(replace(GLOO, sleeps_in_collectives=False))
    assert len(before) == 2
    assert last > 9.0
    assert max(looks_until_blocked(GLOO)) < 5.0


def test_the_first_silence_is_the_longest() -> None:
    spins, known = replace(GLOO, sleeps_in_collectives=False), set[frozenset[tuple[str, int]]]()
    assert looks_until_blocked(spins, known)[-1] > 9.0
    assert 4.0 < looks_until_blocked(spins, known)[-1] < 5.0


def test_ranks_that_compile_are_as_silent_the_second_time() -> None:
    for name in ("gloo", "cuda+gloo", "nccl"):
        made = RankKind(compiled=True, backend=name).options
        assert made["silence_after"] == made["silence"] == 600
    assert RankKind(backend="nccl").options["silence_after"] < 30
    assert LAUNCHED["silence_after"] == LAUNCHED["silence"]


def test_a_launcher_is_as_patient_as_before_once_a_template_is_opened() -> None:
    fork_server = ForkServer()
    try:
        request = {"handler": "handlers:Echo", "setup": {}, "paths": [str(HERE)]}
        options = Options(silence=9.0)
        opened = fork_server.finish(fork_server.begin(request, options), request, options)
        assert not isinstance(opened, TemplateFailure)
        opened.close()
        assert fork_server._silence == Options().silence
    finally:
        fork_server.close()


def test_a_guard_that_is_made_anew_watches_the_device_as_well() -> None:
    state = [1]
    guard = Guard(lambda: [("random numbers of a device", lambda: list(state), None)])
    state[0] = 2
    again = guard.anew()
    assert again.changes() == ([], False)
    state[0] = 3
    assert again.changes() == (["random numbers of a device"], True)
