"""What is wrong on a plain case is told before any check is run, in no other words than later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.checks import CHECKS, Check, formula, padding
from aggverify.checks.layout import CONTEXT_PARALLEL, DATA_PARALLEL, MICRO_BATCHES
from aggverify.codes.state import State
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.deadline import NEVER
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.outcome.events import CheckStarted, ConfirmedFinding, Event, Finished, Seen
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.verdict import Exit, RunVerdict
from aggverify.run.planning.plan import plan
from aggverify.run.search.fail_fast import first_failure
from aggverify.run.search.runner import CheckRun
from aggverify.run.session import examine
from aggverify.steps.case import Case
from aggverify.world import Fault, Pool

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDER = (MICRO_BATCHES, DATA_PARALLEL, CONTEXT_PARALLEL)


def examined(
    pool: Pool, file: str, engine: str, checks: Sequence[Check]
) -> tuple[RunVerdict, list[str]]:
    told: list[str] = []

    def emit(event: Event) -> None:
        match event:
            case Seen(finding):
                told.append(f"seen {finding.code}")
            case ConfirmedFinding(report):
                told.append(f"found {report.finding.code}")
            case CheckStarted(name):
                told.append(name)

    path, budget = str(EXAMPLES / file), Budget("quick", max_examples=5)
    claim = Claim(path, "reduce", "native", engine, "token_mean", max_world=4, budget=budget)
    with opened(pool, {"path": path}) as template:
        verdict = examine(Subject.of(claim), Executor(template), emit, checks=checks)
    return verdict, told


@pytest.mark.thorough
def test_it_is_told_before_the_first_check_starts(shared_pool: Pool) -> None:
    verdict, told = examined(shared_pool, "broken/cp_shard_mean.py", "mean", ORDER)
    first, second, last = (check.name for check in ORDER)
    assert told == ["seen AGV201", first, second, last, "seen AGV201", "found AGV201"]
    assert [report.finding.code for report in verdict.reports] == ["AGV201"]


def test_what_is_right_is_not_told_of(shared_pool: Pool) -> None:
    verdict, told = examined(shared_pool, "native/mean/token_mean.py", "mean", ORDER)
    assert told == [check.name for check in ORDER]
    assert not verdict.reports


def test_its_cases_are_not_run_twice(shared_pool: Pool) -> None:
    whole, _ = examined(shared_pool, "native/mean/token_mean.py", "mean", ORDER)
    parts = [
        examined(shared_pool, "native/mean/token_mean.py", "mean", [check])[0] for check in ORDER
    ]
    before = examined(shared_pool, "native/mean/token_mean.py", "mean", [])[0].executed
    assert whole.executed - before <= sum(part.executed - before for part in parts)
    assert [c.cases for c in whole.checks] == [c.cases for part in parts for c in part.checks]


@pytest.mark.parametrize(
    ("function", "seen"),
    [
        ("right", None),
        ("counts_calls", None),
        ("raises", None),
        ("ends", None),
        ("parts", "AGV404"),
        ("parts_the_second_time", None),
    ],
)
def test_ranks_that_wait_are_seen_and_state_and_exceptions_left_to_their_checks(
    shared_pool: Pool, tmp_path: Path, function: str, seen: str | None
) -> None:
    path = tmp_path / "reducers.py"
    path.write_text(REDUCERS)
    claim = Claim(str(path), function, "native", "sum", "token_mean", max_world=4)
    subject = Subject.of(replace(claim, budget=Budget("quick", max_examples=5)))
    with opened(shared_pool, {"path": str(path)}) as template:
        entries = plan(subject, CHECKS).entries
        found = first_failure(entries, Executor(template), RunStatistics(), NEVER)
        assert (found and found.code) == seen


@pytest.mark.thorough
def test_a_count_that_is_rounded_is_seen(shared_pool: Pool) -> None:
    _, told = examined(shared_pool, "broken/bfloat16_count.py", "sum", [padding.CHECK, *CHECKS])
    assert told[0] == "seen AGV301"


def test_what_runs_away_is_not_held_against_the_checks(
    shared_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_away(run: CheckRun, cases: Sequence[Case], then: object) -> None:
        run.failures.append(Fault("runaway", 0, "rank 0 runs away", 1))

    calmed: list[bool] = []
    monkeypatch.setattr(CheckRun, "first_failure", runs_away)
    monkeypatch.setattr(Executor, "calm", lambda executor: calmed.append(True))
    path = str(EXAMPLES / "native/mean/token_mean.py")
    subject = Subject.of(Claim(path, "reduce", "native", "mean", "token_mean", max_world=4))
    with opened(shared_pool, {"path": path}) as template:
        entries = plan(subject, ORDER).entries
        assert first_failure(entries, Executor(template), RunStatistics(), NEVER) is None
    assert calmed == [True], "and nothing more is looked at"


@pytest.mark.thorough
def test_one_check_has_no_look_before_it(shared_pool: Pool) -> None:
    _, told = examined(shared_pool, "broken/padded_width.py", "sum", [formula.CHECK])
    assert told[0] == formula.NAME


def test_what_was_told_is_in_the_verdict_whenever_it_is_stopped(shared_pool: Pool) -> None:
    def emit(event: Event) -> None:
        if isinstance(event, Finished):
            verdicts.append(event.verdict)
        elif isinstance(event, CheckStarted):
            raise KeyboardInterrupt

    verdicts: list[RunVerdict] = []
    path = str(EXAMPLES / "broken/cp_shard_mean.py")
    claim = Claim(path, "reduce", "native", "mean", "token_mean", max_world=4)
    with opened(shared_pool, {"path": path}) as template, pytest.raises(KeyboardInterrupt):
        examine(Subject.of(claim), Executor(template), emit, checks=ORDER)
    [verdict] = verdicts
    [report] = verdict.reports
    assert report.finding.code == "AGV201" and report.confirmed and report.diagnosis is None
    assert [check.state for check in verdict.checks] == [
        State.NOT_JUDGED, State.NOT_JUDGED, State.FAILED,
    ]  # fmt: skip
    assert verdict.exit is Exit.FINDINGS


REDUCERS = '''
import os

import torch
import torch.distributed as dist

CALLS = []


def right(losses, batch):
    return losses[batch.mask.bool()].sum() / max(batch.num_tokens, 1)


def counts_calls(losses, batch):
    """Right the first time."""
    CALLS.append(1)
    return right(losses, batch) * (1 if len(CALLS) < 2 else 2)


def raises(losses, batch):
    raise KeyError("loss_mask")


def parts(losses, batch):
    """One rank of several issues a collective that the others leave out."""
    if dist.get_rank() == 1:
        dist.all_reduce(torch.zeros(1))
    return right(losses, batch)


def parts_the_second_time(losses, batch):
    """Not in ranks that have run nothing."""
    CALLS.append(1)
    return right(losses, batch) if len(CALLS) < 2 else parts(losses, batch)


def ends(losses, batch):
    """One rank of several ends, as one does that the machine has no room for."""
    if dist.get_rank() == 1:
        os._exit(1)
    return right(losses, batch)
'''
