"""An entry of a plan that is run alone asks for the cases that it asks for in the whole plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from aggverify.checks import CHECKS, Check
from aggverify.codes.state import State
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run import session
from aggverify.run.opening import loaded
from aggverify.run.outcome.scheduling import Outcome
from aggverify.run.planning.plan import PlannedCheck
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.run.search.pipeline import Running
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.world import Pool

TARGET = "tests.corpus.branches.right:fused_rows_are_scaled_back"
"""Right, with numbers, a dtype and conditions."""
SOME = ("holds_where_code_branches", "holds_in_larger_worlds", "linear_in_the_losses")

UNHURRIED = 3600.0
"""Seconds: on a busy machine the clock may cut what is drawn, and then a run says so."""

Asked = dict[str, list[tuple[str, Case]]]


def asked(
    subject: Subject,
    executor: Executor,
    checks: Iterable[Check],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Asked, dict[str, State]]:
    """By entry the cases that are judged, in order, each with whose property is looked at: that of
    other checks too where the entry looks at branches; and what becomes of the entry."""
    cases: Asked = {}
    now = [""]
    submit = CheckRun.submit

    def running(entry: PlannedCheck, *args: Any, **options: Any) -> Outcome:
        now[0] = entry.check.name
        return run_check(entry, *args, **options)

    def noting(run: CheckRun, some: Sequence[Case]) -> Running:
        cases.setdefault(now[0], []).extend((run.check.name, case) for case in some)
        return submit(run, some)

    with monkeypatch.context() as patched:
        patched.setattr(session, "run_check", running)
        patched.setattr(CheckRun, "submit", noting)
        verdict = session.examine(subject, executor, checks=checks)
    return cases, {summary.name: summary.state for summary in verdict.checks}


def compared(
    request: Request, checks: Sequence[Check], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole plan of these checks, and each of them alone."""
    with loaded(request, pool) as ((subject,), executor):
        together, states = asked(subject, executor, checks, monkeypatch)
        assert together and State.FAILED not in states.values()
        for check in (each for each in checks if each.name in states):
            alone, state = asked(subject, executor, [check], monkeypatch)
            assert alone == ({check.name: together[check.name]} if check.name in together else {})
            assert state == {check.name: states[check.name]}


@pytest.mark.thorough
def test_some_entries_ask_for_the_same_cases_alone(
    shared_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After others, and before them: what ran already is no reason for another case."""
    request = Request(
        TARGET, modes=("token_mean",), profile="quick", max_examples=4, max_time=UNHURRIED
    )
    some = [check for check in CHECKS if check.name in SOME]
    compared(request, some, shared_pool, monkeypatch)


@pytest.mark.exhaustive
def test_every_entry_asks_for_the_same_cases_alone(
    shared_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(TARGET, modes=("token_mean",), max_time=UNHURRIED)
    compared(request, CHECKS, shared_pool, monkeypatch)
