"""What is wrong on one branch is found by the check it is known for; what is right there passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aggverify.checks import check, shapes
from aggverify.codes.state import State
from aggverify.execution.budget import Budget
from aggverify.execution.laboratory import Laboratory, Submitted
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial, trial
from aggverify.generation.shapes import around
from aggverify.run.outcome.consequences import Outcome
from aggverify.run.outcome.tally import Tally
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.check_run import CheckRun
from aggverify.run.search.run_check import run_check
from aggverify.run.session import loaded, prepared
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool
from tests.branchy.parts import Branchy
from tests.branchy.right import RIGHT
from tests.branchy.wrong import WRONG
from tests.choosing import thorough_but

ALONE = Case(parse_step("2/" + "1" * 900), Layout.trivial(1), (0.5,) * 900, "bfloat16")
WIDE = ALONE.with_layout(Layout(ALONE.layout.micro_batches, 2))
QUICK = {"long_ones_have_no_holes", "long_ones_are_multiplied"}


def name(entry: Branchy) -> str:
    return entry.function


def outcomes(entry: Branchy, module: str, pool: Pool, *checks: str) -> list[Outcome]:
    """Of these checks, each by itself, as the default run has them."""
    request = Request(target=f"tests.branchy.{module}:{entry.function}", modes=(entry.mode,))
    with loaded(request, pool) as (found, laboratory):
        laboratory.begin()
        subject = prepared(found[0], laboratory)
        planned = plan(subject, [check(each) for each in checks]).entries
        return [run_check(one, laboratory) for one in planned]


@pytest.mark.covers(check=shapes.NAME)
@pytest.mark.parametrize(
    "entry", thorough_but(WRONG, lambda e: e.function in QUICK, ids=name, each=2)
)
def test_a_wrong_branch_is_found(entry: Branchy, shared_pool: Pool) -> None:
    [outcome] = outcomes(entry, "wrong", shared_pool, entry.check)
    assert outcome.summary.state in (State.FAILED, State.HAZARD), outcome.summary
    first = outcome.findings[0]
    assert first.confirmed
    assert entry.says in first.finding.message
    assert first.diagnosis is None or first.diagnosis.bug is None or entry.bug


@pytest.mark.parametrize(
    "entry", thorough_but(RIGHT, lambda e: e.function in QUICK, ids=name, each=2)
)
def test_a_right_branch_passes(entry: Branchy, shared_pool: Pool) -> None:
    for outcome in outcomes(entry, "right", shared_pool, shapes.NAME):
        assert outcome.summary.state is State.OK, outcome.summary
        assert not outcome.findings


def steered(subject: Subject, laboratory: Laboratory, *, steers: bool = True) -> CheckRun:
    """The shapes with one listed case, and what it leads to."""
    space = shapes.space(subject)
    one = next(case for case in around(space, [700]) if case is not None)
    check = replace(shapes.CHECK, steers=steers, stored=lambda _: [one])
    run = CheckRun(check, subject, space, laboratory, Tally())
    run.found = run.stored_failure() or run.steered_failure()
    return run


@pytest.mark.parametrize("steers", [True, False])
def test_what_has_not_run_steers_to_a_branch_behind_a_branch(
    steers: bool, shared_pool: Pool
) -> None:
    """Of one long case in float64 the way leads to 16 bits, and from there to micro-batches."""
    target = "tests.branchy.wrong:fused_rows_are_scaled_twice"
    with loaded(Request(target=target, modes=("token_mean",)), shared_pool) as (found, laboratory):
        laboratory.begin()
        run = steered(found[0], laboratory, steers=steers)
    assert (run.found is not None) is steers
    assert run.cases <= 1 + Budget().steered
    if run.found is not None:
        case = run.found.case
        assert case.dtype == "bfloat16" and case.layout.num_microbatches > 1


def test_what_is_steered_to_does_not_depend_on_what_ran_before(shared_pool: Pool) -> None:
    request = Request(
        target="tests.branchy.right:fused_rows_are_scaled_back",
        modes=("token_mean",),
        profile="quick",
    )
    with loaded(request, shared_pool) as (found, laboratory):
        sent: list[list[Case]] = []
        submit = laboratory.submit

        def noting(subject: Subject, cases: Sequence[Case | Trial]) -> Submitted:
            sent[-1] += [trial(case).case for case in cases]
            return submit(subject, cases)

        laboratory.submit = noting  # type: ignore[method-assign]
        for others in ((), (ALONE, WIDE)):
            laboratory.begin()
            submit(found[0], others).executions()
            sent.append([])
            assert steered(found[0], laboratory).found is None
    alone, after = sent
    assert alone == after
    assert len(alone) == 1 + Budget("quick").steered


def test_the_tables_are_sound() -> None:
    for table in (WRONG, RIGHT):
        assert len({entry.function for entry in table}) == len(table)
    assert all(check(entry.check) for entry in WRONG)
