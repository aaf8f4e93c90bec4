"""What a reducer gives to torch.compile: run eagerly, a few steps compiled, or all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.checks import compiled
from aggverify.codes.state import State
from aggverify.model import load
from aggverify.run.opening import loaded
from aggverify.run.outcome.events import Event, Waiting
from aggverify.run.outcome.verdict import RunVerdict
from aggverify.run.planning.request import Request
from aggverify.run.session import examine
from aggverify.world import Pool
from tests.conftest import Cli

BRIEF = ["--profile", "quick", "--max-examples", "1", "--world", "2", "--report", "json"]
REDUCER = """
import torch
AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

@torch.compile(backend="BACKEND")
def summed(losses, mask):
    FAULT
    return torch.where(mask.bool(), losses, 0).sum()

def reduce(losses, batch):
    return summed(losses, torch.cat(batch.local_masks)) / max(batch.num_tokens, 1)
"""
WRONG = "losses = losses * 2 if torch.compiler.is_compiling() else losses"


def reducer(folder: Path, fault: str = "pass", backend: str = "eager") -> Path:
    text = REDUCER.replace("FAULT", fault).replace("BACKEND", backend)
    (folder / "r.py").write_text(text)
    return folder / "r.py"


def judged(path: Path, pool: Pool, world: int = 1) -> tuple[RunVerdict, list[Event]]:
    """What the check of compiled code alone says."""
    told: list[Event] = []
    request = Request(str(path), max_world=world)
    with loaded(request, pool) as ([subject], executor):
        return examine(subject, executor, told.append, checks=[compiled.CHECK]), told


@pytest.mark.thorough
def test_a_right_one_runs_eagerly_and_agrees_compiled(shared_pool: Pool, tmp_path: Path) -> None:
    verdict, told = judged(reducer(tmp_path), shared_pool)
    [summary] = verdict.checks
    assert (summary.state, summary.cases) == (State.OK, 3)
    assert Waiting("torch.compile compiles a few steps, on 1 rank and on 2") in told
    assert "torch.compile ran eagerly" in " ".join(verdict.subject.notes)


def test_a_file_whose_compiled_code_is_not_called_is_left_alone(
    shared_pool: Pool, tmp_path: Path
) -> None:
    path = reducer(tmp_path)
    path.write_text(path.read_text().replace("return summed(", "return summed.__wrapped__("))
    verdict, told = judged(path, shared_pool)
    assert verdict.checks[0].state is State.LEFT_OUT
    assert not any(isinstance(event, Waiting) for event in told)
    assert verdict.subject.notes == ()


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["pass", WRONG])
def test_on_several_ranks(shared_pool: Pool, tmp_path: Path, fault: str) -> None:
    verdict, _ = judged(reducer(tmp_path, fault), shared_pool, world=2)
    [summary] = verdict.checks
    codes = {report.finding.code for report in verdict.reports}
    # Of the wrong one, a case to make it small and one that was under way.
    assert (summary.cases, codes) == ((6, {"AGV409"}) if fault == WRONG else (5, set()))


@pytest.mark.thorough
def test_one_that_is_wrong_only_when_compiled_is_found(cli: Cli, tmp_path: Path) -> None:
    reducer(tmp_path, WRONG)
    ran = cli("check", "r.py", *BRIEF)
    assert ran.code == 1, ran
    [found] = load(tmp_path / ".aggverify/verdict.json").verdicts[0].findings
    assert (found.code, found.confirmed) == ("AGV409", True)
    assert "(the same code run eagerly)" in ran.out
    assert "2 times too much" in ran.flat, ran
    again = cli(*found.replay[1:])
    assert again.code == 1, again
    reducer(tmp_path)
    assert cli(*found.replay[1:]).code == 0


@pytest.mark.exhaustive
def test_asked_for_everything_is_compiled(cli: Cli, tmp_path: Path) -> None:
    reducer(tmp_path, WRONG)
    ran = cli("check", "r.py", "--compile", *BRIEF)
    assert ran.code == 1, ran
    [verdict] = load(tmp_path / ".aggverify/verdict.json").verdicts
    assert "AGV101" in {found.code for found in verdict.findings}
    assert "torch.compile compiles the first steps, in every rank\n" in ran.out
    states = {check.name: check.state for check in verdict.checks}
    assert states["compiled_as_eager"] is State.LEFT_OUT


@pytest.mark.exhaustive
@pytest.mark.parametrize("works", [True, False])
def test_the_usual_backend_needs_a_compiler(shared_pool: Pool, tmp_path: Path, works: bool) -> None:
    fault = "pass" if works else 'import os; os.environ["CXX"] = "/nowhere/c++"'
    path = reducer(tmp_path, backend="inductor")
    cache = f'import os; os.environ["TORCHINDUCTOR_CACHE_DIR"] = "{tmp_path}/cache"\n'
    path.write_text(cache + fault + path.read_text())
    verdict, _ = judged(path, shared_pool)
    [summary] = verdict.checks
    if works:
        assert summary.state is State.OK, summary
    else:
        assert summary.state is State.NOT_JUDGED, summary
        assert "torch.compile does not work here" in str(summary.reason)
