"""The search draws as many cases as it may, each once, and stops at what fails."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from aggverify.checks import Finding
from aggverify.execution.budget import MIN_EXAMPLES
from aggverify.execution.kept import Submitted
from aggverify.generation.space import Space
from aggverify.run.search.drawing import MAX_BATCH, draws, search
from aggverify.run.search.pipeline import Running
from aggverify.steps.case import Case


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
    assert search(draws(space, 0), bench.submit, max_examples=budget) is None
    assert len(bench.seen) == len(set(bench.seen)) == budget


def test_no_case_is_drawn_twice_and_the_first_ones_stay_the_first() -> None:
    space = Space(max_dp=4, max_microbatches=3)
    many = list(islice(draws(space, 0), 200))
    assert len(set(many)) == 200
    assert list(islice(draws(space, 0), 30)) == many[:30]
    assert list(islice(draws(space, 1), 30)) != many[:30]


def test_draws_end_where_nothing_new_comes() -> None:
    few = Space(lengths=(1,), max_extra_samples=0, dtypes=("float64",))
    every = list(draws(few, 0))
    assert 100 < len(every) < 5000 and len(set(every)) == len(every)


def test_the_smallest_of_the_first_failures_is_shown() -> None:
    bench = Bench(most=2)
    found = search(draws(Space(max_dp=2), 0), bench.submit, max_examples=100)
    assert found is not None
    failing = [case for case in bench.seen if len(case.step.samples) > 2]
    assert found.case.size == min(case.size for case in failing)
    assert len(bench.seen) == len(set(bench.seen)) < 100


@pytest.mark.parametrize("least", [-5, 0, MIN_EXAMPLES])
def test_a_search_that_is_late_still_draws_the_least(least: int) -> None:
    bench, cases = Bench(most=1000), draws(Space(), 0)
    assert search(cases, bench.submit, max_examples=1000, deadline=0.0, least=least) is None
    assert max(0, least) <= len(bench.seen) <= (least + 3 * MAX_BATCH if least > 0 else 0)
