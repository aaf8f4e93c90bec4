"""Steps are drawn towards a condition that went one way only, where its distance is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aggverify.checks import shapes
from aggverify.codes.state import State
from aggverify.execution import budget
from aggverify.execution.laboratory import Submitted
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial, trial
from aggverify.generation.shapes import long_and_sharded
from aggverify.run.opening import loaded
from aggverify.run.outcome.consequences import Outcome
from aggverify.run.outcome.tally import Tally
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.check_run import CheckRun
from aggverify.run.search.run_check import run_check
from aggverify.run.session import prepared
from aggverify.steps.case import Case
from aggverify.world import Pool
from tests.choosing import thorough_at_times, thorough_but
from tests.corpus.branches.computed import RIGHT, VOCABULARY, WRONG
from tests.corpus.branches.parts import Branchy


def name(entry: Branchy) -> str:
    return entry.function


def listed(subject: Subject) -> list[Case]:
    """Long ones on several ranks, none of them long enough."""
    every = filter(None, long_and_sharded(shapes.space(subject)))
    return [case for case in every if case.step.num_response_tokens < 1_000][:12]


CHECK = replace(shapes.CHECK, stored=listed, on_branches=None)


def request(function: str) -> Request:
    target = f"tests.corpus.branches.computed:{function}"
    return Request(target=target, modes=("token_mean",), max_examples=10)


def outcome(function: str, pool: Pool) -> Outcome:
    with loaded(request(function), pool) as (found, laboratory):
        laboratory.begin()
        [entry] = plan(prepared(found[0], laboratory), [CHECK]).entries
        return run_check(entry, laboratory)


@pytest.mark.parametrize(
    "entry",
    thorough_but(
        WRONG,
        lambda _: False,
        ids=name,
        each=6,
        always=lambda e: e.function == "drops_tails_where_padding_prevails",
    ),
)
def test_what_is_worked_out_from_sizes_is_reached(entry: Branchy, shared_pool: Pool) -> None:
    made = outcome(entry.function, shared_pool)
    assert made.summary.state is State.FAILED
    [reported] = made.findings
    assert reported.confirmed
    case = reported.finding.case
    assert case.layout.world_size > 1
    if entry.function == "halves_beyond_a_memory_budget":
        # One response, as long as it has to be.
        least = 4 * 2**30 // (4 * VOCABULARY) + 1
        assert least <= case.step.num_response_tokens <= least * 1.003
        assert "where `size > 4` is true in line " in reported.finding.message


@pytest.mark.parametrize("entry", thorough_at_times(RIGHT, 2, ids=name))
def test_a_right_branch_passes(entry: Branchy, shared_pool: Pool) -> None:
    made = outcome(entry.function, shared_pool)
    assert made.summary.state is State.OK and not made.findings


@pytest.mark.thorough
def test_without_cases_for_it_none_is_reached(
    shared_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = replace(budget.PROFILES["ci"], approaching=0)
    monkeypatch.setitem(budget.PROFILES, "ci", none)  # type: ignore[arg-type]
    made = outcome("halves_beyond_a_memory_budget", shared_pool)
    assert made.summary.state is State.OK


@pytest.mark.thorough
def test_so_many_cases_at_most_and_the_same_ones_again(shared_pool: Pool) -> None:
    with loaded(request("never_beyond_its_budget"), shared_pool) as (found, laboratory):
        sent: list[Case] = []
        turns: list[list[Case]] = []
        submit = laboratory.submit

        def noting(subject: Subject, cases: Sequence[Case | Trial]) -> Submitted:
            sent.extend(trial(case).case for case in cases)
            return submit(subject, cases)

        laboratory.submit = noting  # type: ignore[method-assign]
        for _ in range(2):
            laboratory.begin()
            [entry] = plan(found[0], [CHECK]).entries
            assert entry.space is not None
            run = CheckRun(entry.check, found[0], entry.space, laboratory, Tally())
            assert run.stored_failure() is None
            sent.clear()
            assert run.approached_failure(seed=0) is None
            turns.append([*sent])
    first, second = turns
    assert first == second
    assert 20 < len(first) <= budget.PROFILES["ci"].approaching
