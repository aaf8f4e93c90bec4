"""Ranks that issue different collectives: silent, hanging and aborting cases alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aggverify.world import Fault, Job, Replies, Template
from tests.world.conftest import HERE, job
from tests.world.test_faults import fault

PLACE = r" at collectives\.py:\d+"
ACTS = f"{HERE}/handlers/collectives.py"


def diverged(play: Template, faulty: Job) -> Fault:
    """The job diverges the same way wherever it stands: last of all, and before others."""
    found = fault(play, faulty)
    (alone,) = play.run([faulty])
    assert isinstance(alone, Fault)
    assert found.kind == alone.kind == "diverged"
    # Where gloo aborts a rank, an innocent one may die before it has told its collectives.
    odd = [f.message.rpartition("; ")[2] for f in (found, alone)]
    assert (found.rank, odd[0]) == (alone.rank, odd[1])
    return found


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", ["extra", "extra_async", "skip"])
def test_a_collective_too_many_or_too_few(play: Template, name: str, world: int) -> None:
    assert diverged(play, job(name, world, on=[1])).rank == 1


@pytest.mark.parametrize("world", [2, 4])
def test_a_collective_that_no_trace_shows(play: Template, world: int) -> None:
    hidden = job("unwrapped", world, on=[1])
    found = fault(play, hidden)
    # Not the next job is to make up for it: what the company would show is run again by itself.
    assert (found.kind, found.rank) == ("diverged", 1)
    assert "rank 1 waits in all_reduce" in found.message
    (alone,) = play.run([hidden])
    assert isinstance(alone, Fault)
    assert (alone.kind, alone.rank) == ("diverged", 1)
    assert "rank 1 waits in all_reduce" in alone.message


@pytest.mark.parametrize("lengths", [(4, 5), (5, 4), (32, 64), (64, 32)])
def test_other_lengths(play: Template, lengths: tuple[int, int]) -> None:
    found = diverged(play, job("other_length", odd=2, lengths=lengths))
    small, large = lengths
    assert found.rank == 2
    assert re.match(
        rf"rank 2: ranks disagree on collective 1 of ranks 0,1,2,3: ranks? [013](,[13])*: "
        rf"all_reduce float32\[{large}\] SUM{PLACE}; "
        rf"rank 2: all_reduce float32\[{small}\] SUM{PLACE}",
        found.message,
    ), found.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other_dtype", "ranks 0,1,3: all_reduce float32[4] SUM; rank 2: all_reduce int32[4] SUM"),
        ("other_op", "ranks 0,1,3: all_reduce float32[4] SUM; rank 2: all_reduce float32[4] MAX"),
        ("other_order", "ranks 0,1,3: broadcast float32[2] src=0; rank 2: all_reduce float32[4]"),
        ("other_group", ""),
    ],
)
def test_other_operations(play: Template, name: str, said: str) -> None:
    # Dtype and operation are what gloo itself says nothing about.
    odd = 1 if name == "other_group" else 2
    found = diverged(play, job(name, odd=odd))
    assert found.rank == odd
    assert said in re.sub(PLACE, "", found.message)


def test_the_line_that_issued_it_is_told(play: Template) -> None:
    message = diverged(play, job("other_op", odd=1)).message
    lines = Path(ACTS).read_text().splitlines()
    for word, place in zip(("others", "mine"), re.findall(PLACE, message), strict=True):
        line = lines[int(place.rpartition(":")[2]) - 1]
        assert "dist.all_reduce" in line, word
        assert ("MAX" in line) == (word == "mine")


def test_a_group_made_by_one_rank_only(play: Template) -> None:
    found = diverged(play, job("alone_new_group", on=[3]))
    assert found.rank == 3
    assert "new_group [0, 1]" in found.message


def test_beyond_the_part_of_a_trace_that_is_kept(play: Template) -> None:
    found = diverged(play, job("many_collectives", 2, odd=1))
    assert "collective 251" in found.message


def test_legitimate_differences_between_ranks_are_none(play: Template) -> None:
    outcomes = play.run([job("sub_groups"), job("many_collectives", 2), job("wait_async"),
                         job("unwrapped"), job("nothing")])  # fmt: skip
    assert all(isinstance(outcome, Replies) for outcome in outcomes), outcomes
    assert isinstance(outcomes[0], Replies)
    assert [r.data["objects"] for r in outcomes[0].replies] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_threads_of_many_groups_leave_room_in_a_ranks_memory(play: Template) -> None:
    [outcome] = play.run([job("many_groups", 2, groups=24)])
    assert isinstance(outcome, Replies), outcome


def test_waiting_for_an_asynchronous_collective_is_told(play: Template) -> None:
    found = diverged(play, job("wait_async", on=[1]))
    assert found.rank == 1
    assert "all_reduce float32[3] SUM" in found.message
