"""The ranks get the next cases before the last are judged, but not after a failure."""

from __future__ import annotations

from collections.abc import Sequence

from aggverify.checks import Finding
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Submitted
from aggverify.run.search.pipeline import Pipeline, Running
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Fault

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


def test_the_next_cases_start_before_the_last_are_judged() -> None:
    said: list[str] = []
    line = pipeline(said, fails=False, finds=False)
    assert line.push([FIRST]) == {}
    assert line.push([SECOND]) == {FIRST: None}
    assert line.drain() == {SECOND: None}
    assert line.drain() == {}
    assert said == ["start 1", "start 2", "judge 1", "judge 2"]


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
