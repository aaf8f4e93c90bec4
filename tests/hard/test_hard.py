"""Every hard case kills a reducer that random search finds late, with a code it is said to show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aggverify.checks import Check, check
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.corpus import CorpusCase, corpus
from aggverify.run.opening import opened
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.drawing import draws, search
from aggverify.run.search.runner import CheckRun
from aggverify.world import Pool
from tests.choosing import thorough_at_times, thorough_but
from tests.hard.wrong import SPECIAL, WRONG

LATE = 25
"""Drawn cases of a check under --profile quick: none of them shows it, for two seeds of three, or
for eight of twelve."""
SOONER = "three_micro_batches_that_cut_groups"
"""Five seeds of twelve draw what shows it."""
SHOWN = {
    *("AGV101", "AGV102", "AGV103", "AGV104", "AGV111", "AGV112", "AGV121", "AGV122", "AGV123"),
    *("AGV124", "AGV127", "AGV131", "AGV132", "AGV133", "AGV141", "AGV142", "AGV201", "AGV202"),
    *("AGV203", "AGV204", "AGV205", "AGV206", "AGV207", "AGV208", "AGV211", "AGV212", "AGV301"),
}
"""What one case shows, without special runs: each code has a hard case."""
QUICK = {"a_response_that_begins_with_a_chunk", "every_other_token"}


@pytest.fixture(scope="module")
def executor(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"module": "tests.hard.wrong"}) as template:
        yield Executor(template)


def subject(hard: CorpusCase, terms: tuple[str, ...], mode: str) -> Subject:
    claim = Claim("tests.hard.wrong", hard.name, "native", "sum", mode, terms=terms)
    return Subject.of(claim)


def run_of(hard: CorpusCase, executor: Executor) -> tuple[Check, CheckRun]:
    if hard.name in SPECIAL:
        name, mode, terms = SPECIAL[hard.name]
    else:
        entry = WRONG[hard.name]
        name, mode, terms = entry.check, entry.mode, ()
    how, about = check(name), subject(hard, terms, mode)
    space = how.space(about)
    assert space is not None
    executor.begin()
    return how, CheckRun(how, about, space, executor, RunStatistics())


every = thorough_but(corpus(), lambda hard: hard.name in QUICK, ids=lambda hard: hard.name, each=10)


@pytest.mark.parametrize("hard", every)
def test_a_hard_case_kills_its_reducer(hard: CorpusCase, executor: Executor) -> None:
    how, run = run_of(hard, executor)
    assert hard.checks in ((), (how.name,))
    assert hard.case in run.stored_cases() or how.project(hard.case) in run.stored_cases()
    case = hard.case if hard.checks else how.project(hard.case)
    found = run.judge(case)
    assert found is not None and found.code in hard.shows, found


@pytest.mark.parametrize(
    "hard",
    thorough_at_times(
        corpus(),
        18,
        ids=lambda hard: hard.name,
        marks=lambda hard: [pytest.mark.xfail(strict=True)] * (hard.name == SOONER),
    ),
)
def test_random_search_finds_it_late(hard: CorpusCase, executor: Executor) -> None:
    how, run = run_of(hard, executor)
    space, late = how.draws(run.space), float("inf")
    most = min(LATE, how.max_examples or LATE)

    def missed(seeds: range) -> int:
        drawn = (draws(space, seed) for seed in seeds)
        found = (search(some, run.submit, max_examples=most, deadline=late) for some in drawn)
        return sum(one is None for one in found)

    few = missed(range(3))
    assert few >= 2 or few + missed(range(3, 12)) >= 8


def test_every_code_that_a_step_shows_is_there() -> None:
    shown = {code for hard in corpus() for code in hard.shows}
    assert shown == SHOWN
    assert {hard.name for hard in corpus()} == WRONG.keys() | SPECIAL.keys()
    assert len(corpus()) >= 60
