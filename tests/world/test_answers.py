"""Other people's code can reach a rank's connection: what it says is checked where it is read."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from aggverify.world import (
    Fault,
    Pool,
    Replies,
    Template,
    TemplateFailure,
    answers,
    flight_recorder,
)
from aggverify.world.link import Link, open_link
from aggverify.world.wire import encode
from tests.hostile import ERROR
from tests.world.conftest import HERE, job

SEEN: Any = {"trace": [], "sequences": {}}
ANSWER: Any = {"data": {}, **SEEN}
READY = encode({"ready": 1})
FORGED = {
    "a frame without end": struct.pack("<II", 100, 1 << 29),
    "no JSON": encode({}).replace(b"{}", b"{x"),
    "nothing": encode({}),
    "data that is none": encode({"data": 3, **SEEN}),
    "no trace": encode({"data": {}}),
    "a trace of numbers": encode({**ANSWER, "trace": [1]}),
    "a long trace": encode({**ANSWER, "trace": ["x"] * 201}),
    "a long line": encode({**ANSWER, "trace": ["x" * 20_000]}),
    "odd counts": encode({**ANSWER, "sequences": {"a": ["b"]}}),
    "counts in no list": encode({**ANSWER, "sequences": {"a": 1}}),
    "odd changes": encode({**ANSWER, "changes": "umask"}),
    "an error that is none": encode({"error": "no", **SEEN}),
    "an error of no type": encode({"error": {**ERROR, "type": []}, **SEEN}),
    "an error without a trace": encode({"error": {}}),
    "ready twice": READY,
    "odd preparing": encode({"preparing": "yes"}),
    "the end of what was not begun": encode({"preparing": False}),
}  # fmt: skip


@pytest.fixture
def link() -> Iterator[Link]:
    link, (connection, output, _) = open_link(0)
    link.hear(READY)
    yield link
    link.close()
    for fd in (connection, output):
        os.close(fd)


@pytest.mark.parametrize("what", FORGED)
def test_what_is_no_answer_ends_the_conversation(link: Link, what: str) -> None:
    link.asked += 1
    link.hear(FORGED[what])
    assert link.ended
    assert (link.garbage or "").startswith("sent what is no answer: ")
    assert len(link.garbage or "") < 300


@pytest.mark.parametrize("header", [ANSWER, {"preparing": True}], ids=["answers", "preparing"])
def test_a_flood_is_not_kept(link: Link, header: Any) -> None:
    other = {"preparing": False} if "preparing" in header else header
    link.asked += 1
    link.replies.clear()
    link.hear((encode(header) + encode(other)) * 10_000)
    assert len(link.replies) <= 1
    assert link.garbage is not None
    assert "what it was not asked" in link.garbage


def test_no_more_than_a_job_asks_for_is_waited_for(link: Link) -> None:
    link.asked += 2
    link.decoder.most = answers.SMALL + 100
    assert link.hear(encode(ANSWER, b"x" * (answers.SMALL + 50))).complete
    link.hear(encode(ANSWER, b"x" * (answers.SMALL + 101))[:99])
    assert "a frame announces" in (link.garbage or "")


@pytest.mark.parametrize("size", [0, 7, 40])
def test_a_slate_that_was_cut_off_reads_as_empty(size: int) -> None:
    page = flight_recorder.create()
    os.ftruncate(page, size)
    assert flight_recorder.read(page) == flight_recorder.FlightRecord(0, (), None, False)
    assert flight_recorder.dump_size(page) == 0
    assert flight_recorder.dump(page) == ""
    os.close(page)


def liar(play: Template, act: str, **payload: Any) -> Fault:
    """The fault of a job whose rank 1 does that, between two others that are not touched."""
    good = job("nothing", 2)
    before, outcome, after = play.run([good, job(act, 2, on=[1], **payload), good])
    assert isinstance(before, Replies), before
    assert isinstance(after, Replies), after
    assert isinstance(outcome, Fault), outcome
    return outcome


@pytest.mark.parametrize(
    "what",
    [
        "no trace",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("nothing", "no JSON", "ready twice", "an error that is none")
        ),
    ],
)
def test_a_rank_that_says_so_is_named(play: Template, what: str) -> None:
    found = liar(play, "say", bytes=FORGED[what].hex())
    assert (found.kind, found.rank) == ("died", 1)
    assert found.message.startswith("rank 1 sent what is no answer: ")


@pytest.mark.thorough
def test_a_flood_is_a_fault_of_the_rank(play: Template) -> None:
    found = liar(play, "say", bytes=encode(ANSWER, b"x" * 1000).hex(), times=100_000, sleeps=True)
    assert (found.kind, found.rank) == ("died", 1)
    assert "what it was not asked" in found.message


@pytest.mark.thorough
def test_a_trickle_is_waiting_for_ever(play: Template) -> None:
    found = liar(play, "trickle")
    assert (found.kind, found.rank) == ("blocked", 1)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [0, 5])
def test_a_slate_cut_off_is_no_trouble(play: Template, size: int) -> None:
    found = liar(play, "cut_the_slate", size=size)
    assert (found.kind, found.rank) == ("died", 1)


@pytest.mark.parametrize(
    "said",
    [
        b'{"description":3,"threads":"none","cuda":false}',
        b'{"description":{},"threads":"no","cuda":false}',
        b'{"error":{}}',
        b"x",
    ],
)
def test_an_import_that_answers_for_us_is_a_failure(pool: Pool, said: bytes) -> None:
    data = len(said).to_bytes(4, "little") + bytes(4) + said
    setup = {"act": "say", "bytes": data.hex()}
    failure = pool.template("handlers:FailsToStart", setup, paths=[HERE])
    assert isinstance(failure, TemplateFailure)
    assert failure.kind == "died"
    assert failure.message.startswith("the process sent what is no answer while importing: ")
