"""What is wrong on one branch is found by the check it is known for; what is right there passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aggverify.checks import check, shapes, virtual
from aggverify.codes.state import State
from aggverify.execution.run_spec import RunSpec
from aggverify.generation.shapes import Builder
from aggverify.run.opening import loaded
from aggverify.run.outcome.scheduling import Outcome
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool
from tests.choosing import thorough_but
from tests.corpus.branches.parts import Branchy
from tests.corpus.branches.right import RIGHT
from tests.corpus.branches.wrong import WRONG

ALONE = Case(parse_step("2/" + "1" * 900), Layout.trivial(1), (0.5,) * 900, "bfloat16")
WIDE = ALONE.with_layout(Layout(ALONE.layout.micro_batches, 2))
QUICK = {"counts_itself", "the_step_in_float32"}


def name(entry: Branchy) -> str:
    return entry.function


def outcomes(entry: Branchy, module: str, pool: Pool, *checks: str) -> list[Outcome]:
    """Of these checks, each by itself, as the default run has them."""
    request = Request(
        target=f"tests.corpus.branches.{module}:{entry.function}", modes=(entry.mode,)
    )
    with loaded(request, pool) as (found, executor):
        executor.begin()
        subject = prepared(found[0], executor)
        planned = plan(subject, [check(each) for each in checks]).entries
        return [run_check(one, executor) for one in planned]


@pytest.mark.covers(check=shapes.NAME)
@pytest.mark.parametrize(
    "entry",
    thorough_but(
        WRONG,
        lambda e: e.function in QUICK,
        ids=name,
        each=40,
        always=lambda e: e.function == "long_ones_have_no_holes",
    ),
)
def test_a_wrong_branch_is_found(entry: Branchy, shared_pool: Pool) -> None:
    [outcome] = outcomes(entry, "wrong", shared_pool, entry.check)
    assert outcome.summary.state in (State.FAILED, State.HAZARD), outcome.summary
    first = outcome.findings[0]
    assert first.confirmed
    assert entry.says in first.finding.message
    assert first.diagnosis is None or first.diagnosis.bug is None or entry.bug


@pytest.mark.parametrize(
    "entry", thorough_but(RIGHT, lambda e: e.function in QUICK, ids=name, each=40)
)
def test_a_right_branch_passes(entry: Branchy, shared_pool: Pool) -> None:
    for outcome in outcomes(entry, "right", shared_pool, entry.check):
        passes = (State.OK, State.LEFT_OUT, State.NOT_CLAIMED)
        assert outcome.summary.state in passes[: 1 if entry.check == shapes.NAME else 3]
        assert not outcome.findings


@pytest.mark.covers(check=virtual.NAME)
@pytest.mark.parametrize(
    "function, module, again",
    [("a_table_of_eight_ranks", "wrong", True), ("asks_its_rank_once", "right", False)],
)
def test_what_virtual_ranks_show_is_asked_of_a_process_for_each(
    function: str, module: str, again: bool, shared_pool: Pool
) -> None:
    target = f"tests.corpus.branches.{module}:{function}"
    with loaded(Request(target=target, modes=("token_mean",)), shared_pool) as (found, executor):
        space = virtual.space(found[0])
        assert space is not None
        case = Builder(space).case((b"\1\1",), (9, 1, 1))
        assert case is not None
        run = CheckRun(virtual.CHECK, found[0], space, executor, RunStatistics())
        assert run.judge(case) is not None
        assert (run.judge_again(case) is not None) is again


@pytest.mark.thorough
def test_a_wrong_table_of_ranks_is_seen_with_a_process_for_each(shared_pool: Pool) -> None:
    entry = next(e for e in WRONG if e.function == "a_table_of_eight_ranks")
    [outcome] = outcomes(entry, "wrong", shared_pool, virtual.NAME)
    [report] = outcome.findings
    assert report.confirmed and report.fails
    assert report.finding.case.layout.dp_size == 9, "one rank more than the table has"
    assert outcome.statistics.observer.extent.tried.virtual_ranks > 8
    assert outcome.statistics.observer.largest_world <= 8


@pytest.mark.thorough
def test_what_one_process_keeps_of_another_rank_is_a_warning(shared_pool: Pool) -> None:
    entry = next(e for e in RIGHT if e.function == "asks_its_rank_once")
    [outcome] = outcomes(entry, "right", shared_pool, virtual.NAME)
    assert (outcome.summary.state, outcome.findings) == (State.OK, ())
    assert outcome.statistics.observer.doubted
    outcome.statistics.observer.cases = 1  # in a run there are others
    told = outcome.statistics.observer.weaknesses(outcome.entry.subject)
    assert "AGVW20" in {w.code for w in told}


def test_nothing_is_said_of_one_that_issues_collectives(shared_pool: Pool) -> None:
    entry = next(e for e in RIGHT if e.function == "waits")
    [outcome] = outcomes(entry, "right", shared_pool, virtual.NAME)
    assert outcome.entry.subject.found.communicates
    assert (outcome.summary.state, outcome.findings) == (State.LEFT_OUT, ())


def test_a_collective_of_a_virtual_rank_is_seen_and_not_judged(shared_pool: Pool) -> None:
    """On a branch that nothing has taken before."""
    target = "tests.corpus.branches.right:counts_over_the_group_when_long"
    with loaded(Request(target=target, modes=("token_mean",)), shared_pool) as (found, executor):
        subject = prepared(found[0], executor)
        assert not subject.found.communicates
        check = replace(
            virtual.CHECK,
            variants=lambda case: (case.trivial, RunSpec(case, virtual=(0, 1))),
            only=lambda _: [replace(WIDE, dtype="float64")],
        )
        [planned] = plan(subject, [check]).entries
        outcome = run_check(planned, executor)
    assert outcome.summary.state is State.LEFT_OUT
    assert outcome.summary.reason and "talk to others" in outcome.summary.reason


def test_a_virtual_world_gives_what_the_real_one_gives(shared_pool: Pool) -> None:
    """Bit for bit, whatever is asked of torch.distributed."""
    target = "tests.corpus.branches.right:any_world"
    step = parse_step("2/1101 1/11; 3/111 1/1")
    case = Case(step, Layout((((0,), (1,)), ((2,), (3,))), 2), tuple(map(float, range(10))))
    for engine in ("sum", "megatron-token"):
        request = Request(target=target, modes=("token_mean",), engine=engine)
        with loaded(request, shared_pool) as (found, executor):
            ranks = tuple(range(4))
            played = RunSpec(case, virtual=ranks), RunSpec(case, virtual=ranks, where="apart")
            real, *others = executor.run(found[0], [case, *played])
        assert real.weights is not None
        for other in others:
            assert other.weights is not None
            assert np.array_equal(real.weights, other.weights)
            assert (real.value, real.local_losses) == (other.value, other.local_losses)


def test_the_tables_are_sound() -> None:
    for table in (WRONG, RIGHT):
        assert len({entry.function for entry in table}) == len(table)
    assert all(check(entry.check) and entry.met for entry in (*WRONG, *RIGHT))
    assert (len(WRONG), len(RIGHT)) == (35, 31)
