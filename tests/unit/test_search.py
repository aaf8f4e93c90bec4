"""The search draws as many cases as it may, each once, and stops at what fails."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from aggverify.checks import Finding
from aggverify.execution.budget import MIN_EXAMPLES
from aggverify.execution.executed import Execution
from aggverify.execution.laboratory import Submitted
from aggverify.generation.approaching import alike, fixed
from aggverify.generation.space import Space
from aggverify.run.search.approaching import ARRIVED, HOPELESS, TOWARDS, Approaching, Goal, Nearest
from aggverify.run.search.drawing import MAX_BATCH, Enough, approach, search
from aggverify.run.search.pipeline import Running
from aggverify.steps import kinds
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

FOREVER = float("inf")


class Bench:
    """Judges cases without ranks: those of more samples than ``most`` fail."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.seen: list[Case] = []

    def submit(self, cases: Sequence[Case]) -> Running:
        self.seen += cases
        told = [self._judged(case) for case in cases]
        return Running(Submitted(list, lambda: any(told)), lambda _: told)

    def _judged(self, case: Case) -> Finding | None:
        if len(case.step.samples) <= self.most:
            return None
        return Finding("AGV202", "independent_of_micro_batches", "", case, "token_mean")


@pytest.mark.parametrize("budget", [1, 2, 5, 30, 150])
def test_no_more_cases_than_the_budget_and_none_twice(budget: int) -> None:
    bench = Bench(most=1000)
    space = Space(max_dp=4, max_microbatches=3)
    assert search(space, bench.submit, max_examples=budget, seed=0, deadline=FOREVER) is None
    assert len(bench.seen) == len(set(bench.seen)) == budget


def test_what_is_drawn_again_is_not_run_again() -> None:
    bench = Bench(most=1000)
    search(Space(lengths=(1,)), bench.submit, max_examples=400, seed=0, deadline=FOREVER)
    assert 300 < len(set(bench.seen)) < 400  # drawn as often as it may be, some of it twice
    assert len(bench.seen) == len(set(bench.seen))


def test_the_smallest_of_the_first_failures_is_shown() -> None:
    bench = Bench(most=2)
    found = search(Space(max_dp=2), bench.submit, max_examples=100, seed=0, deadline=FOREVER)
    assert found is not None
    failing = [case for case in bench.seen if len(case.step.samples) > 2]
    assert found.case.size == min(case.size for case in failing)
    assert len(bench.seen) == len(set(bench.seen)) < 100


def test_a_search_that_is_late_still_draws_some() -> None:
    bench = Bench(most=1000)
    assert search(Space(), bench.submit, max_examples=1000, seed=0, deadline=0.0) is None
    assert MIN_EXAMPLES <= len(bench.seen) <= MIN_EXAMPLES + 3 * MAX_BATCH


WIDE = Space(max_dp=2, max_microbatches=130, lengths=(1,), holes=True)
NEAR = Case(parse_step("2/11 1/1"), Layout((((0,),), ((1,),))), (0.0,) * 3)


SEEDS = range(8)


def _products(case: Case) -> int:
    """Samples times tokens of the longest response."""
    return len(case.step.samples) * max(s.response_length for s in case.step.samples)


def approached(least: int, *, aimed: bool, seed: int, most: int = 64) -> list[Case]:
    """The cases that are drawn towards that product."""
    seen: list[Case] = []

    def look(case: Case) -> float | None:
        seen.append(case)
        if _products(case) >= least:
            raise Enough
        return float(least - _products(case)) if aimed else None

    approach(alike(WIDE, NEAR), look, max_examples=most, seed=seed)
    return seen


def test_an_approach_draws_each_case_once_and_all_alike_that_one() -> None:
    seen = approached(10**9, aimed=True, seed=0)
    assert 40 < len(seen) == len(set(seen)) <= 64
    assert {fixed(case) for case in seen} == {fixed(NEAR)}
    assert seen == approached(10**9, aimed=True, seed=0)


@pytest.mark.thorough
def test_an_approach_gets_nearer_than_cases_of_all_sizes() -> None:
    """To a product of two sizes, which neither gets to by itself."""
    far = 3_000_000
    there = {
        aimed: sum(_products(approached(far, aimed=aimed, seed=seed)[-1]) >= far for seed in SEEDS)
        for aimed in (True, False)
    }
    assert there[True] > there[False]


def test_what_an_approach_finds_is_made_small() -> None:
    """Down to the sizes that it takes, with no more cases than as many again."""
    found: list[Finding] = []
    seen = 0

    def look(case: Case) -> Finding | None:
        nonlocal seen
        seen += 1
        if _products(case) < 5_000:
            return None
        found.append(Finding("AGV203", "a check", "", case, None))
        return found[-1]

    approach(alike(WIDE, NEAR), look, max_examples=64, seed=0)
    first, least = found[0].case, min(found, key=lambda f: f.case.size).case
    assert least.size < first.size
    assert least.layout.num_microbatches == 1 and len(least.step.samples) < 8
    assert seen <= 128


def test_a_condition_is_a_goal_where_an_outcome_is_missing_and_the_other_was_near() -> None:
    one, two = (1 << kinds.KINDS.index(kind) for kind in (kinds.ONE_RANK, kinds.SHARDED))
    nearest, alone = Nearest(), NEAR.trivial
    nearest.add([Execution(alone, outcomes=frozenset((0, 2, 5)), distances={0: 9.0, 5: math.inf})])
    nearest.add([Execution(alone, outcomes=frozenset((0,)), distances={0: 12.0})])
    nearest.add([Execution(NEAR, outcomes=frozenset((1, 5)), distances={1: 4.0, 5: 3.0})])
    ran = {0: one, 1: two, 2: one, 5: one | two}
    never, alone_only = Goal(4, sharded=False), Goal(0, sharded=True)
    assert list(nearest.goals(ran)) == [never, alone_only, Goal(4, sharded=True)]
    assert nearest.cases[never.seen] == NEAR and nearest.is_known(never)
    assert nearest.distance(never) == 3.0
    assert nearest.distance(Goal(1, sharded=True)) == 0.0
    assert nearest.distance(Goal(7, sharded=False)) is None


def test_first_comes_what_has_a_distance_that_is_known() -> None:
    nearest = Nearest()
    far = {0: math.inf, 2: 3.0}
    nearest.add([Execution(NEAR.trivial, outcomes=frozenset(far), distances=far)])
    ran = dict.fromkeys(far, 1 << kinds.KINDS.index(kinds.ONE_RANK))
    assert list(nearest.goals(ran)) == [Goal(3, sharded=False), Goal(1, sharded=False)]


def approaching(
    nearest: Nearest, ran: dict[int, int], far: float
) -> tuple[Approaching, list[Case]]:
    """Of a run in which every case has these outcomes, at that distance."""
    seen: list[Case] = []

    def judge(case: Case) -> None:
        seen.append(case)
        outcomes = frozenset(ran)
        nearest.add([Execution(case, outcomes=outcomes, distances=dict.fromkeys(ran, far))])

    return Approaching(WIDE, judge, nearest, ran, 0), seen


@pytest.mark.parametrize("far", [9.0, math.inf])
def test_what_gets_no_nearer_for_one_condition_is_not_drawn_again_for_another(far: float) -> None:
    nearest = Nearest()
    nearest.add([Execution(NEAR, outcomes=frozenset((0, 2)), distances={0: far, 2: far})])
    made, seen = approaching(nearest, {0: kinds.ALL, 2: kinds.ALL}, far)
    assert made.failure(96) is None
    assert len(seen) == HOPELESS


def test_ten_cases_with_an_outcome_are_enough() -> None:
    nearest = Nearest()
    nearest.add([Execution(NEAR, outcomes=frozenset((0,)), distances={0: 9.0})])
    ran = {0: kinds.ALL}

    def judge(case: Case) -> None:
        seen.append(case)
        nearest.add([Execution(case, outcomes=frozenset((1,)), distances={1: 3.0})])

    seen: list[Case] = []
    assert Approaching(WIDE, judge, nearest, ran, 0).failure(96) is None
    assert len(seen) == ARRIVED


def test_no_more_cases_than_its_budget_for_all_goals_together() -> None:
    nearest = Nearest()
    nearest.add([Execution(NEAR, outcomes=frozenset((0, 2)), distances={0: 999.0, 2: 999.0})])
    ran = {0: kinds.ALL, 2: kinds.ALL}

    def judge(case: Case) -> None:
        seen.append(case)
        nearer = dict.fromkeys(ran, 999.0 - len(seen))
        nearest.add([Execution(case, outcomes=frozenset(ran), distances=nearer)])

    seen: list[Case] = []
    assert Approaching(WIDE, judge, nearest, ran, 0).failure(96) is None
    assert TOWARDS < len(set(seen)) <= 96  # what was run before costs nothing
