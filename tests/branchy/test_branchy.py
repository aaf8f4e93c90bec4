"""What is wrong on one branch is found by the check it is known for; what is right there passes."""

from __future__ import annotations

import pytest

from aggverify.checks import check, shapes
from aggverify.codes.state import State
from aggverify.run.outcome.consequences import Outcome
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.run_check import run_check
from aggverify.run.session import loaded, prepared
from aggverify.world import Pool
from tests.branchy.parts import Branchy
from tests.branchy.right import RIGHT
from tests.branchy.wrong import WRONG
from tests.choosing import thorough_but

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


def test_the_tables_are_sound() -> None:
    for table in (WRONG, RIGHT):
        assert len({entry.function for entry in table}) == len(table)
    assert all(check(entry.check) for entry in WRONG)
