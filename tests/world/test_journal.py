"""Replies that an earlier start of a run has left, and what is no such file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aggverify.world import Fault, Replies, Reply
from aggverify.world.journal import Journal, named

ONE = Replies((Reply({"a": 1.5}, b"\x00\xff"), Reply({}, b"", ("seed",), ("all_reduce",))))
OTHER = Replies((Reply({"a": 2}, b"x"),))


def written(path: Path) -> None:
    journal = Journal.begun(path)
    for outcome in (ONE, Fault("died", 0, "it is gone"), OTHER):
        journal.add("job", outcome)
    journal.add("another", ONE)
    journal.end(keep=True)


def taken(path: Path) -> Journal:
    found = Journal.taken_up(path)
    assert found is not None
    return found


def test_replies_come_back_in_their_order_and_faults_do_not(tmp_path: Path) -> None:
    written(tmp_path / "j")
    found = taken(tmp_path / "j")
    assert found.known == 3
    assert [found.replies("job") for _ in range(3)] == [ONE, OTHER, None]
    assert [found.replies(name) for name in ("another", "unknown")] == [ONE, None]
    found.end(keep=False)
    assert not (tmp_path / "j").exists()


def test_a_third_start_has_what_both_have_left(tmp_path: Path) -> None:
    written(tmp_path / "j")
    with (tmp_path / "j").open("ab") as file:
        file.write(b'{"job":"cut off in the mid')
    second = taken(tmp_path / "j")
    assert second.replies("job") == ONE
    second.add("new", OTHER)
    second.end(keep=True)
    third = taken(tmp_path / "j")
    assert third.known == 4
    assert (third.replies("job"), third.replies("new")) == (ONE, OTHER)
    third.end(keep=True)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]\n",
        b'{"schema":2}\n',
        b'{"schema":1}',
        b'{"schema":1}\nnothing\n',
        b'{"schema":1}\n{"job":"x","replies":[[1]]}\n',
        b'{"schema":1}\n{"job":"x","replies":[[{},"!",[],[]]]}\n',
    ],
)
def test_what_is_no_journal_is_not_taken_up(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "j").write_bytes(text)
    assert Journal.taken_up(tmp_path / "j") is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    written(tmp_path / "there")
    (tmp_path / "j").symlink_to("there")
    before = (tmp_path / "there").read_bytes()
    assert Journal.taken_up(tmp_path / "j") is None
    Journal.begun(tmp_path / "j").end(keep=False)
    assert (tmp_path / "there").read_bytes() == before
    assert not (tmp_path / "j").is_symlink()


def test_where_there_is_no_room_the_run_goes_on_without(tmp_path: Path) -> None:
    journal = Journal.begun(tmp_path / "j")
    os.close(journal._file or 0)
    journal._file = os.open("/dev/full", os.O_WRONLY)
    journal.add("job", ONE)
    journal.add("job", ONE)
    journal.end(keep=False)


def test_names_differ_where_any_part_does() -> None:
    assert named("a", 1) == named("a", 1) != named("a", 2)
