"""What a search makes of reducers whose faults hide behind one another, or behind a rounding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggverify.checks import Check, formula, windows
from aggverify.checks.steadiness import REPEAT, STATE
from aggverify.codes.state import State
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.subject import Subject
from aggverify.run.outcome.consequences import Outcome
from aggverify.run.planning.plan import plan
from aggverify.run.search.run_check import run_check
from aggverify.run.session import opened
from aggverify.world import Pool

FILE = Path(__file__).with_name("searched.py")


@pytest.fixture(scope="module")
def laboratory(shared_pool: Pool) -> Iterator[Laboratory]:
    with opened(shared_pool, {"path": str(FILE)}) as template:
        yield Laboratory(template)


def outcome(laboratory: Laboratory, function: str, check: Check, mode: str) -> Outcome:
    budget = Budget("quick", max_examples=5)
    claim = Claim(str(FILE), function, "native", "sum", mode, max_world=4, budget=budget)
    [entry] = plan(Subject.of(claim), [check]).entries
    return run_check(entry, laboratory)


def test_a_wrong_factor_does_not_slide_into_its_rounding(laboratory: Laboratory) -> None:
    found = outcome(laboratory, "sum_of_means_in_float32", formula.CHECK, "sample_mean").finding
    assert found is not None
    told = found.finding
    assert told.expected is not None and told.observed is not None and told.token is not None
    assert told.observed[told.token] / told.expected[told.token] == pytest.approx(2)


@pytest.mark.parametrize("check", [REPEAT, STATE, windows.CHECK], ids=lambda check: check.name)
def test_equal_exceptions_are_no_evidence(laboratory: Laboratory, check: Check) -> None:
    summary = outcome(laboratory, "raises", check, "token_mean").summary
    assert summary.cases > 0
    assert summary.state is State.NOT_JUDGED
    assert "KeyError: 'loss_mask'" in str(summary.reason)
