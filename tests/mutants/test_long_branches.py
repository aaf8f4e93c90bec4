"""What every branch may break by itself is looked at on each of them."""

from __future__ import annotations

import pytest

from aggverify.checks import check, shapes
from aggverify.codes.state import State
from aggverify.run.opening import loaded
from aggverify.run.outcome.scheduling import Outcome
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.world import Pool
from tests.choosing import thorough_but
from tests.corpus.branches.long_ones import BROKEN, ROWS


def outcome(function: str, pool: Pool) -> Outcome:
    request = Request(
        target=f"tests.corpus.branches.long_ones:{function}", modes=("token_mean",), profile="quick"
    )
    with loaded(request, pool) as (found, executor):
        executor.begin()
        [entry] = plan(prepared(found[0], executor), [check(shapes.NAME)]).entries
        return run_check(entry, executor)


@pytest.mark.parametrize(
    "function",
    thorough_but(
        sorted(BROKEN), lambda _: False, ids=str, each=6, always="ignores_grad_output".__eq__
    ),
)
def test_a_branch_that_breaks_another_property_is_found(function: str, shared_pool: Pool) -> None:
    """As the check of that property finds it, on one of the smallest steps that take the branch."""
    made = outcome(function, shared_pool)
    assert made.summary.state is State.FAILED
    [reported] = made.findings
    assert reported.finding.code == BROKEN[function]
    assert check(reported.finding.check).on_branches is not None
    assert reported.confirmed
    step = reported.finding.case.step
    assert 60 < step.num_response_tokens < 300 or len(step.samples) > ROWS


@pytest.mark.thorough
def test_a_branch_that_breaks_none_passes(shared_pool: Pool) -> None:
    made = outcome("heeds_everything", shared_pool)
    assert made.summary.state is State.OK and not made.findings
