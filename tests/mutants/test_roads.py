"""Every road to a collective is seen on every way that we run a reducer, and none is blamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aggverify.checks import virtual
from aggverify.codes.state import State
from aggverify.execution.run_spec import RunSpec
from aggverify.run.opening import loaded
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool
from aggverify.world.deferred_completion import AT_ONCE, WAITED_FOR
from tests.choosing import thorough_at_times
from tests.corpus.roads import ROADS

STEP = parse_step("1/11; 1/1")
CASE = Case(STEP, Layout((((0,),), ((1,),)), 1), (1.0, 2.0, 3.0))


@pytest.mark.parametrize("road", thorough_at_times(ROADS, 9, ids=str))
def test_a_road_is_seen_and_its_reducer_is_right(shared_pool: Pool, road: str) -> None:
    request = Request(target=f"tests.corpus.roads:{road}", modes=("token_mean",), engine="sum")
    with loaded(request, shared_pool) as (found, executor):
        subject = found[0]
        early, late, traced, played = executor.run(
            subject,
            [
                RunSpec(CASE, arrival=AT_ONCE),
                RunSpec(CASE, arrival=WAITED_FOR),
                RunSpec(CASE, alone=True),
                RunSpec(CASE, virtual=(0, 1)),
            ],
        )
        for each in (early, late, traced):
            assert each.weights is not None, each.failure
            assert np.array_equal(each.weights, np.full(3, 1 / 3))
        calls = [call.operation for trace in traced.traces for call in trace if call.place]
        assert calls
        assert played.failure is None, played.failure
        assert played.communicates
        check = replace(
            virtual.CHECK,
            variants=lambda case: (case.trivial, RunSpec(case, virtual=(0, 1))),
            only=lambda _: [CASE],
        )
        [planned] = plan(prepared(subject, executor), [check]).entries
        outcome = run_check(planned, executor)
    assert (outcome.summary.state, outcome.findings) == (State.LEFT_OUT, ())
