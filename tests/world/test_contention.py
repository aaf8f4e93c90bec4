"""How loaded the machine is, by how long processes wait for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aggverify.checks import CHECKS
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.runner import CheckRun
from aggverify.world import Pool, processes
from tests.waiting import wait_until
from tests.world.conftest import job, opened

BUSY = "import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"


@pytest.fixture
def three() -> Iterator[list[int]]:
    """Processes that share one processor."""
    code = BUSY.format(processor=min(os.sched_getaffinity(0)))
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


@pytest.mark.thorough
def test_three_that_share_a_processor_take_three_times_as_long(three: list[int]) -> None:
    assert wait_until(lambda: processes.contention(three) > 1.5)


def test_who_has_ended_takes_no_part_in_it() -> None:
    assert processes.contention([1 << 22]) == pytest.approx(processes.contention([]), rel=0.1)


def test_budgets_are_of_seconds_on_an_idle_machine(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "contention", lambda pids: 4.0 if list(pids) else 2.0)
    template = opened(pool, "Skipper")
    template.run([job("nothing", 2)])
    executor = Executor(template)
    executor.budget_clock()
    began, budget = executor.clock(), executor.budget_clock()
    time.sleep(0.3)
    passed, counted = executor.clock() - began, executor.budget_clock() - budget
    assert passed >= 0.3
    assert counted == pytest.approx(passed / 4, rel=0.2)


@pytest.mark.parametrize(("said", "clock"), [(None, "budget"), (5.0, "wall")])
def test_seconds_that_a_person_gives_are_the_walls(said: float | None, clock: str) -> None:
    claim = Claim("r.py", "reduce", "native", "sum", budget=Budget(max_time=said))
    ranks: Any = SimpleNamespace(clock=lambda: "wall", budget_clock=lambda: "budget")
    run = CheckRun(CHECKS[0], Subject.of(claim), cast("Any", None), ranks, RunStatistics())
    assert run.clock() == clock
