"""What a job alters beyond its answer is reported, and gone for the next job."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aggverify.world import Replies, Template
from aggverify.world.state import _environment, _random_aspect
from tests.world.conftest import job
from tests.world.handlers_names import BEYOND_REPAIR, CHANGED


def answers(play: Template, *jobs: object) -> list[list[dict[str, object]]]:
    outcomes = play.run(list(jobs))  # type: ignore[arg-type]
    assert all(isinstance(outcome, Replies) for outcome in outcomes), outcomes
    return [
        [r.data | {"changes": r.changes} for r in o.replies]
        for o in outcomes
        if isinstance(o, Replies)
    ]


@pytest.mark.parametrize("what", CHANGED)
def test_a_change_is_named_and_undone(play: Template, what: str) -> None:
    look = job("look_at_state", 2)
    before, changed, after, again = answers(
        play, look, job("change_state", 2, what=what), look, job("nothing", 2)
    )
    assert what in changed[0]["changes"], changed  # type: ignore[operator]
    # Random numbers too: what a job draws must not depend on the jobs before it.
    assert after == [{**data, "pid": new["pid"]} for data, new in zip(before, after, strict=True)]
    replaced = before[0]["pid"] != again[0]["pid"]
    assert replaced == (what in BEYOND_REPAIR)


@pytest.fixture
def kept() -> Iterator[tuple[int, tuple[int, ...], float | None]]:
    """The state of random numbers, given back."""
    state = random.getstate()
    yield state
    random.setstate(state)


def _second_of_a_pair() -> None:
    version, words, _ = random.getstate()
    random.setstate((version, words, 0.5))


@pytest.mark.parametrize("position", [0, 621, 624])
@pytest.mark.parametrize(
    "draw", [random.random, lambda: random.getrandbits(1), random.gauss, _second_of_a_pair]
)
def test_a_look_draws_no_random_number(
    kept: tuple[int, tuple[int, ...], float | None], position: int, draw: Callable[[], object]
) -> None:
    """Looked at by what would be drawn next, wherever in the 624 words that is."""
    version, words, pair = kept
    random.setstate((version, (*words[:-1], position), pair))
    before = random.getstate()
    _, look, undo = _random_aspect()
    assert undo is not None
    expected = look()
    assert look() == expected
    assert random.getstate() == before
    draw()
    assert look() != expected
    assert look() != expected, "a look has put back what it was to tell"
    undo(expected)
    assert random.getstate() == before
    assert look() == expected


def test_what_torch_sets_on_its_way_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a functional collective does, when it is used for the first time."""
    before = _environment()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "somewhere")
    assert _environment() == before
    monkeypatch.setenv("ANOTHER", "somewhere")
    assert _environment() != before


def test_nothing_changed_nothing_said(play: Template) -> None:
    assert answers(play, job("nothing", 2))[0][0]["changes"] == ()


@pytest.mark.parametrize("name", ["close_streams", "capture_streams", "leave_thread"])
def test_streams_and_threads_left_behind(play: Template, name: str) -> None:
    changed, chatter = answers(play, job(name, 2, on=[1]), job("chatter", 2))
    assert changed[1]["changes"]
    assert chatter[1]["changes"] == ()


def test_a_rank_that_must_be_replaced_does_nothing_more(play: Template, tmp_path: Path) -> None:
    """What it was given ahead is done by others: threads, say, would add up in it."""
    marks = tmp_path / "marks"
    replies = answers(play, *[job("leave_thread_and_mark", 1, marks=str(marks))] * 5)
    assert all(rank["changes"] == ("threads",) for [rank] in replies)
    pids = marks.read_text().split()
    assert len(pids) == len(set(pids)) >= 5


def test_stdin_is_empty(play: Template) -> None:
    assert answers(play, job("read_stdin", 1))[0][0]["read"] == ""


def test_the_input_belongs_to_one_call(play: Template) -> None:
    edited, after = answers(play, job("edit_input", 2), job("nothing", 2))
    assert edited[0]["sum"] == after[0]["sum"] == 2


def test_what_a_rank_has_started_ends_with_its_world(play: Template) -> None:
    ((_, answer),) = answers(play, job("leave_daemon", 2, on=[1]))
    assert Path(f"/proc/{answer['daemon']}").exists()
    play.restart_worlds()
    # Adopted and ended by the template process as soon as the rank is gone.
    while Path(f"/proc/{answer['daemon']}").exists():
        answers(play, job("nothing", 1))


def test_ranks_listen_on_the_loopback_interface_only(play: Template) -> None:
    (ranks,) = answers(play, job("listening", 2))
    assert {address for rank in ranks for address in rank["addresses"]} <= {"0100007F"}  # type: ignore[attr-defined]
    assert ranks[0]["addresses"]


def test_order_does_not_matter(play: Template) -> None:
    suite = [
        job("look_at_state", 2), job("change_state", 2, what="torch default dtype"),
        job("raise_error", 2, value=1), job("change_state", 2, what="random state"),
        job("leave", 2, status=1, on=[0]), job("nothing", 2), job("skip", 2, on=[1]),
        job("sub_groups", 4), job("sleep", 2, seconds=9, on=[1]),
    ]  # fmt: skip

    def told(jobs: list[object]) -> list[str]:
        return [_without_pids(outcome) for outcome in play.run(jobs)]  # type: ignore[arg-type]

    forward = told(list(suite))
    assert told(suite[::-1]) == forward[::-1]
    order = [4, 0, 8, 2, 6, 1, 7, 5, 3]
    assert told([suite[i] for i in order]) == [forward[i] for i in order]


def _without_pids(outcome: object) -> str:
    if isinstance(outcome, Replies):
        return str([{k: v for k, v in r.data.items() if k != "pid"} for r in outcome.replies])
    return f"{outcome.kind} {outcome.rank} {outcome.message}"  # type: ignore[attr-defined]
