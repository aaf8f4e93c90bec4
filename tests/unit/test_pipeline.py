"""The ranks get the next cases before the last are judged, but not after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aggverify.checks import CHECKS, Finding
from aggverify.errors import NotJudged
from aggverify.execution.deadline import OutOfTime
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.kept import Submitted
from aggverify.generation.space import Space
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.plan import PlannedCheck
from aggverify.run.search import entry_runner
from aggverify.run.search.batches import FIRST_BATCH
from aggverify.run.search.pipeline import Pipeline, Running
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Fault
from tests.unit.test_checks import PLAIN

FIRST, SECOND = (Case(parse_step("1/1"), Layout.trivial(1), (x,)) for x in (1.0, 2.0))


def pipeline(said: list[str], *, fails: bool, finds: bool) -> Pipeline:
    """What it does is noted: ``start`` and ``judge`` with the case's loss."""

    def submit(cases: Sequence[Case]) -> Running:
        (case,) = cases
        said.append(f"start {case.losses[0]:g}")
        failure = Fault("blocked", 0, "waits") if fails else None

        def judge(executions: Sequence[Execution]) -> list[Finding | None]:
            said.append(f"judge {case.losses[0]:g}")
            return [Finding("AGV402", "a check", "", case, None) if finds else None]

        executions = [Execution(case, failure=failure)]
        return Running(Submitted(lambda: executions, lambda: fails), judge)

    return Pipeline(submit)


@pytest.mark.parametrize("fault", [None, Fault("blocked", 0, "waits")], ids=["weights", "fault"])
@pytest.mark.parametrize("stumbles", [True, False])
def test_every_stored_case_is_judged_after_a_finding_too(
    stumbles: bool, fault: Fault | None, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were under way, at once unless each may hang, or did not start."""
    cases = [Case(FIRST.step, FIRST.layout, (float(n),)) for n in range(30)]
    seen: list[float] = []

    def submit(run: CheckRun, some: Sequence[Case]) -> Running:
        def judge(executions: Sequence[Execution]) -> list[Finding | None]:
            seen.extend(case.losses[0] for case in some)
            bad = [case.losses[0] == 3 and not run.known for case in some]
            found = [Finding("AGV402", "a check", "", case, None, fault=fault) for case in some]
            return [f if b else None for f, b in zip(found, bad, strict=True)]

        return Running(Submitted(list, lambda: stumbles), judge)

    monkeypatch.setattr(CheckRun, "submit", submit)
    check = replace(CHECKS[0], stored=lambda subject: cases)
    run = CheckRun(check, PLAIN, Space(), executor, RunStatistics())
    found = run.stored_failure()
    assert found is not None and run.found is found
    assert len(seen) == len(set(seen)) < 30
    assert (len(seen) > FIRST_BATCH) == (fault is None and not stumbles)
    run.known.append(found)
    assert run.stored_failure() is None
    assert sorted(seen) == [float(n) for n in range(30)]


def test_what_one_zero_shows_is_not_lost_to_the_other() -> None:
    plus, minus = (FIRST.with_losses((zero,)) for zero in (0.0, -0.0))
    assert plus == minus
    found = Finding("AGV402", "a check", "", plus, None)
    line = Pipeline(lambda cases: Running(Submitted(list, lambda: False), lambda _: [found, None]))
    line.push([plus, minus])
    assert line.drain() == {plus: found}


def test_cases_that_are_put_back_are_left_out_once_the_space_is_smaller(executor: Executor) -> None:
    """As after a hang over ranks, whose cases cost a world each."""
    cases = [Case(FIRST.step, FIRST.layout, (float(n),)) for n in range(3)]
    spread = Case(parse_step("1/1; 1/1"), Layout((((0,),), ((1,),))), (0.5, 0.5))
    check = replace(CHECKS[0], stored=lambda subject: cases)
    run = CheckRun(check, PLAIN, Space(max_dp=2), executor, RunStatistics())
    run._left = iter(cases)
    run._put_back([spread])
    assert run._left is not None
    assert next(run._left) == spread
    run._put_back([spread])
    run.space = Space(max_dp=1)
    assert [case.losses[0] for case in run._left] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("finds", [True, False])
def test_what_cannot_be_judged_takes_no_finding_away(finds: bool) -> None:
    found = Finding("AGV402", "a check", "", FIRST, None) if finds else None
    line = pipeline([], fails=False, finds=False)
    line.push([SECOND])
    line._running = Running(Submitted(_not_judged, lambda: False), lambda executions: [])
    if found is not None:
        assert line.rest({FIRST: found}) == {FIRST: found}
        return
    with pytest.raises(NotJudged):
        line.rest({FIRST: None})


def _not_judged() -> list[Execution]:
    raise NotJudged("no memory")


def test_the_next_cases_start_before_the_last_are_judged() -> None:
    said: list[str] = []
    line = pipeline(said, fails=False, finds=False)
    assert line.push([FIRST]) == {}
    assert line.push([SECOND]) == {FIRST: None}
    assert line.drain() == {SECOND: None}
    assert line.drain() == {}
    assert said == ["start 1", "start 2", "judge 1", "judge 2"]


@pytest.mark.parametrize("fails", [True, False])
def test_what_comes_next_starts_before_the_last_are_judged_but_not_after_a_failure(
    fails: bool,
) -> None:
    said: list[str] = []
    line = pipeline(said, fails=fails, finds=fails)
    line.push([FIRST])
    line.drain(lambda: said.append("next"))
    assert said == (["start 1", "judge 1"] if fails else ["start 1", "next", "judge 1"])
    line.drain(lambda: said.append("next"))
    assert said[-1] == "judge 1", "nothing was under way"


def test_nothing_starts_after_a_failure_that_is_a_finding() -> None:
    said: list[str] = []
    line = pipeline(said, fails=True, finds=True)
    line.push([FIRST])
    (finding,) = line.push([SECOND]).values()
    assert finding is not None
    assert line.drain() == {}
    assert said == ["start 1", "judge 1"]


def test_a_failure_that_is_none_of_the_checks_business_loses_no_case() -> None:
    said: list[str] = []
    line = pipeline(said, fails=True, finds=False)
    line.push([FIRST])
    assert line.push([SECOND]) == {FIRST: None}
    assert line.drain() == {SECOND: None}
    assert said == ["start 1", "judge 1", "start 2", "judge 2"]


@pytest.mark.parametrize("stop", [OutOfTime(), NotJudged("no memory")], ids=["time", "room"])
def test_what_has_been_run_is_judged_where_nothing_more_can_start(stop: BaseException) -> None:
    def no_more(cases: Sequence[Case]) -> Running:
        raise stop

    said: list[str] = []
    started = pipeline(said, fails=False, finds=True)
    started.push([FIRST])
    started._submit = no_more
    assert [f and f.case for f in started.push([SECOND]).values()] == [FIRST]
    nothing = pipeline(said, fails=False, finds=False)
    nothing.push([FIRST])
    nothing._submit = no_more
    with pytest.raises(type(stop)):
        nothing.push([SECOND])
    assert said.count("judge 1") == 2


def test_what_is_judged_on_branches_counts_as_its_cases_do(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(run: CheckRun, cases: Sequence[Case], then: object) -> None:
        run.cases, run.judged, run.refusals = 3, 2, ["no"]

    check = next(check for check in CHECKS if check.on_branches is not None)
    entry = PlannedCheck(check, PLAIN, Space())
    monkeypatch.setattr(entry_runner, "looking_at_branches", lambda subject, skip: [entry])
    monkeypatch.setattr(CheckRun, "first_failure", judged)
    run = CheckRun(CHECKS[0], PLAIN, Space(), executor, RunStatistics())
    assert entry_runner.on_branches(run) is None
    assert (run.cases, run.judged, run.refusals) == (3, 2, ["no"])
