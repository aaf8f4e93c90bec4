"""A constant in float32 that is exact on one rank: in which precision a reducer computes is settled
on any layout, and no mistake of that size passes for a rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aggverify.checks import Check, formula, scalar
from aggverify.checks.layout import CONTEXT_PARALLEL, DATA_PARALLEL, MICRO_BATCHES
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.outcome.verdict import Exit, RunVerdict
from aggverify.run.replay import replay
from aggverify.run.session import examine
from aggverify.world import Pool

FILE = Path(__file__).with_name("rounded.py")
CHECKS = (MICRO_BATCHES, DATA_PARALLEL, CONTEXT_PARALLEL)


@pytest.fixture(scope="module")
def executor(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"path": str(FILE)}) as template:
        yield Executor(template)


def verdict(
    executor: Executor,
    function: str,
    checks: Sequence[Check] = CHECKS,
) -> RunVerdict:
    budget = Budget("quick", max_examples=5)
    claim = Claim(
        f"{FILE}:{function}", function, "native", "sum", "token_mean", max_world=4, budget=budget
    )
    return examine(Subject.of(claim), executor, checks=checks)


def test_a_rounded_constant_is_no_dependence_on_the_layout(executor: Executor) -> None:
    found = verdict(executor, "right")
    assert (found.exit, found.reports) == (Exit.CONFORMS, ())
    # Told by the layouts, and by them alone; so are the sizes that were judged before.
    assert found.subject.computes_in == "float32"
    assert {margin.dtype for margin in found.margins} == {"float64", "float32"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("function", "code", "least"),
    [
        ("off_by_a_millionth", "AGV203", 0.9e-6),
        ("off_below_a_rounding", "AGV203", 0.9e-8),
        ("off_by_a_factor", "AGV201", 0.9),
    ],
)
def test_no_mistake_passes_for_a_rounding(
    executor: Executor, shared_pool: Pool, function: str, code: str, least: float
) -> None:
    found = verdict(executor, function)
    assert [report.finding.code for report in found.reports] == [code]
    [report] = found.reports
    told = report.finding
    assert told.token is not None and told.expected is not None and told.error is not None
    assert told.error / told.expected[told.token] >= least
    again = replay(report.stored, pool=shared_pool).finding
    assert again is not None and again.code == code


@pytest.mark.parametrize(
    "function",
    ["one_and_back", "value_by_way_of_the_sum"],
)
def test_rounding_of_what_is_taken_away_again_is_a_warning(
    executor: Executor, function: str
) -> None:
    found = verdict(executor, function, [formula.CHECK, MICRO_BATCHES, scalar.CHECK])
    assert (found.exit, found.reports) == (Exit.CONFORMS, ())
    assert found.subject.computes_in == "float64"
    [told] = [w for w in found.weaknesses if w.code == "AGV302"]
    needed = float(told.detail.split()[1])
    assert needed > 1
    [weights] = [m.worst_error_over_bound for m in found.margins if m.dtype == "float64"]
    if function == "one_and_back":
        assert weights == pytest.approx(needed, rel=0.01)


@pytest.mark.parametrize(
    ("function", "code"),
    [
        pytest.param("one_and_back_off", "AGV202", marks=pytest.mark.thorough),
        pytest.param("one_and_back_off_in_float32", "AGV101", marks=pytest.mark.thorough),
    ],
)
def test_a_mistake_beyond_such_rounding_is_found(
    executor: Executor, function: str, code: str
) -> None:
    found = verdict(executor, function, [formula.CHECK, MICRO_BATCHES])
    assert code in [report.finding.code for report in found.reports]
