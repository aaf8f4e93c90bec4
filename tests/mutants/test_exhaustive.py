"""The exhaustive phase with real ranks, on a box small enough for a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.checks.exhaustive import CHECK
from aggverify.execution.executor import Executor
from aggverify.generation.enumeration import Box, every_case
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.runner import CheckRun
from tests.corpus.base import Correct, Mutant
from tests.corpus.families import CORRECT, MUTANTS
from tests.mutants.conftest import subject_of

SMALL = Box(samples=2, tokens=2, ranks=2)
SMALL_CHECK = replace(CHECK, only=lambda subject: every_case(SMALL))


def check_run(entry: Mutant | Correct, executor: Executor) -> CheckRun:
    subject = subject_of(entry, executor)
    space = CHECK.space(subject)
    assert space is not None
    return CheckRun(SMALL_CHECK, subject, space, executor, RunStatistics(), lambda: None)


def named(entries: tuple[Mutant, ...] | tuple[Correct, ...], name: str) -> Mutant | Correct:
    return next(entry for entry in entries if entry.function == name)


def test_a_right_reducer_holds_on_every_one(executor: Executor) -> None:
    run = check_run(CORRECT[0], executor)
    assert run.run(examples=0) is None
    assert run.complete
    assert run.cases == sum(1 for _ in every_case(SMALL))


def test_time_that_runs_out_is_told(executor: Executor) -> None:
    run = check_run(CORRECT[0], executor)
    assert run.run(examples=0, seconds=0.0) is None
    assert not run.complete


@pytest.mark.parametrize("function", ["shard_means", "phantom_tokens", "rank_means"])
def test_a_mutant_is_found_on_its_smallest_step(function: str, executor: Executor) -> None:
    finding = check_run(named(MUTANTS, function), executor).run(examples=0)
    assert finding is not None
    assert finding.case.step.num_response_tokens <= 3
