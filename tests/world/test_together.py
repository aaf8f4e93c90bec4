"""Jobs that share a dispatch have the outcomes they have alone, whatever one of them does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from aggverify.world import Fault, Job, Outcome, Pool, Replies, Reply, Template
from aggverify.world.postmortem import split
from tests.world.conftest import job, opened


@pytest.fixture(scope="module")
def template(pool: Pool) -> Iterator[Template]:
    template = opened(pool, "Together")
    yield template
    template.close()


def shared(*jobs: Job) -> list[Job]:
    return [replace(job, together=True) for job in jobs]


def told(outcome: Outcome) -> object:
    """What must not depend on the company."""
    if isinstance(outcome, Fault):
        return outcome.kind, outcome.rank, outcome.message
    hidden = ("pid", "together")
    return [{k: v for k, v in r.data.items() if k not in hidden} for r in outcome.replies]


def test_answers_come_back_to_their_jobs(template: Template) -> None:
    acts = ["nothing", "read_stdin"] * 10
    outcomes = template.run(shared(*(job(name, 2) for name in acts)))
    for n, (name, outcome) in enumerate(zip(acts, outcomes, strict=True)):
        assert isinstance(outcome, Replies), outcome
        assert ("read" in outcome.replies[0].data) == (name == "read_stdin")
        assert outcome.replies[0].data["together"] == (16 if n < 16 else 4)
        assert [r.blob for r in outcome.replies] == [bytes([r]) * (n % 16) for r in range(2)]


def test_only_jobs_that_may_share(template: Template) -> None:
    good = job("nothing", 2)
    outcomes = template.run([*shared(good, good), good, *shared(good)])
    sizes = [o.replies[0].data.get("together") for o in outcomes if isinstance(o, Replies)]
    assert sizes == [2, 2, None, None]


def test_a_fresh_job_does_not_join_those_before_it(template: Template) -> None:
    good = job("nothing", 2)
    outcomes = template.run(shared(good, replace(good, fresh=True), good))
    before, fresh, after = (
        {reply.data["pid"] for reply in outcome.replies}
        for outcome in outcomes
        if isinstance(outcome, Replies)
    )
    assert fresh == after
    assert not fresh & before


@pytest.mark.parametrize(
    "odd",
    [
        job("raise_error", 2, value=1),
        job("raise_error", 2, value=1, on=[1]),
        job("leave", 2, status=3, on=[1]),
        job("sleep", 2, seconds=3600, on=[0]),
        pytest.param(job("loop", 2, on=[1]), marks=pytest.mark.thorough),
        job("skip", 2, on=[1]),
        job("extra_async", 2, on=[0]),
        job("change_state", 2, what="torch default dtype"),
        job("change_state", 2, what="threads"),
        job("unserialisable", 2),
    ],
    ids=lambda job: str(job.payload),
)
def test_an_odd_one_among_others(pool: Pool, odd: Job) -> None:
    good = job("look_at_state", 2)
    jobs = [good, good, odd, good]
    template = opened(pool, "Together")
    alone = [told(outcome) for outcome in template.run(jobs)]
    assert [told(outcome) for outcome in template.run(shared(*jobs))] == alone
    assert alone[0] == alone[1] == alone[3] != alone[2]
    template.close()


@pytest.mark.parametrize(
    ("odd", "answered"),
    [
        (job("raise_error", 2, value=1), True),
        # The other rank waits for this one, so that all runs again, one at a time.
        (job("raise_error", 2, value=1, on=[1]), False),
        (job("leave", 2, status=3, on=[1]), False),
    ],
)
def test_an_odd_one_while_the_jobs_before_are_under_way(
    pool: Pool, odd: Job, answered: bool
) -> None:
    template, good = opened(pool, "Together"), job("nothing", 2)
    *before, seen, after = template.run(shared(*[good] * 16, odd, good))
    assert all(isinstance(outcome, Replies) for outcome in (*before, after))
    sizes = {o.replies[0].data.get("together") for o in before if isinstance(o, Replies)}
    assert sizes == {16} or not answered
    assert isinstance(seen, Fault)
    assert told(seen) == told(template.run([odd])[0])
    template.close()


def test_what_is_left_out_in_one_job_is_not_made_up_for_in_the_next(template: Template) -> None:
    outcomes = template.run(shared(job("skip", 2, on=[1]), job("extra", 2, on=[1])))
    assert [o.kind if isinstance(o, Fault) else None for o in outcomes] == ["diverged"] * 2


def test_code_that_often_fails_is_run_one_job_at_a_time(pool: Pool) -> None:
    template = opened(pool, "Together")
    good, bad = job("nothing", 1), job("raise_error", 1, value=1)
    sizes = []
    for _ in range(10):
        _, *others = template.run(shared(bad, good))
        assert isinstance(others[0], Replies)
        both = template.run(shared(good, good))
        sizes += [o.replies[0].data.get("together") for o in both if isinstance(o, Replies)]
    assert sizes == [2] * 14 + [None] * 6
    # Another subject is not to suffer for it.
    template.calm()
    [one, _] = template.run(shared(good, good))
    assert isinstance(one, Replies)
    assert one.replies[0].data["together"] == 2
    template.close()


@pytest.mark.parametrize(
    ("parts", "sizes"),
    [([1], [0]), ([{}], ["0"]), ([{}], [False]), ({}, [0]), ([{}], [1]), ([{}, {}], [0])],
)
def test_what_is_no_reply_of_each_is_none(parts: object, sizes: object) -> None:
    """A rank can be made to write anything: its jobs are run again one by one."""
    assert split(Replies((Reply({"parts": parts, "sizes": sizes}, b""),)), 1) == [None]
    right = Reply({"parts": [{}], "sizes": [0]}, b"")
    assert split(Replies((right,)), 1) == [Replies((Reply({}, b""),))]
