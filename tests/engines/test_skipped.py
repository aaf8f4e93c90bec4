"""A collective that one rank skips is told as that, whatever the engine's own look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.checks import check
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.run.opening import loaded
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.request import Request
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import explained
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool

REDUCER = """
import torch
import torch.distributed as dist
AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0).sum()
    if len(losses):
        dist.all_reduce(kept.detach().reshape(1))  # what the engine reduces, to the letter
    return kept / max(batch.num_tokens, 1)
"""


@pytest.mark.parametrize("engine", ["sum", "megatron-token"])
def test_the_same_cause_under_every_engine(shared_pool: Pool, tmp_path: Path, engine: str) -> None:
    (tmp_path / "r.py").write_text(REDUCER)
    case = Case(parse_step("1/1"), Layout((((0,),),), cp_size=2), (1.0,))
    with loaded(Request(str(tmp_path / "r.py"), engine=engine), shared_pool) as (found, executor):
        told = judged(found[0], executor, case)
    assert told == ("AGV404", "conditional-collective")


def judged(subject: Subject, executor: Executor, case: Case) -> tuple[str, str]:
    judges = check("independent_of_context_parallel_size")
    run = CheckRun(judges, subject, Space(), executor, RunStatistics())
    finding = run.judge(case)
    assert finding is not None
    diagnosis = explained(run, finding)
    assert diagnosis is not None, finding
    assert diagnosis.bug is not None
    return finding.code, diagnosis.bug.name
