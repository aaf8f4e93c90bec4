"""Replies that an earlier start of a run has left in the store."""

from __future__ import annotations

import pytest

from aggverify.world import Fault, Replies, Reply
from aggverify.world.replay_log import ReplayLog, named
from tests.world.store import Gone, Store

ONE = Replies((Reply({"a": 1.5}, b"\x00\xff"), Reply({}, b"", ("seed",), ("all_reduce",))))
OTHER = Replies((Reply({"a": 2}, b"x"),))
LARGE = Replies((Reply({}, bytes(3 << 20)),))


@pytest.fixture
def store() -> Store:
    return Store()


def written(store: Store) -> ReplayLog:
    replay_log = ReplayLog(store)
    for outcome in (ONE, Fault("died", 0, "it is gone"), OTHER):
        replay_log.add("job", outcome)
    replay_log.add("another", LARGE)
    return replay_log


def test_replies_come_back_in_their_order_and_faults_do_not(store: Store) -> None:
    assert written(store).known == 0
    found = ReplayLog(store)
    assert found.known == 3 and not found.over
    assert [found.replies("job") for _ in range(3)] == [ONE, OTHER, None]
    assert [found.replies(name) for name in ("another", "unknown")] == [LARGE, None]


def test_a_third_start_has_what_both_have_left(store: Store) -> None:
    written(store)
    second = ReplayLog(store)
    assert second.replies("job") == ONE
    second.add("new", OTHER)
    third = ReplayLog(store)
    assert third.known == 4
    assert (third.replies("job"), third.replies("new")) == (ONE, OTHER)


def test_what_was_cut_off_in_the_middle_is_not_there(store: Store) -> None:
    replay_log = written(store)
    counted, store.fails_at = dict(store), "aggverify/so-far/count"
    replay_log.add("job", LARGE)
    assert store != counted, "it was written, and not counted"
    store.fails_at = ""
    found = ReplayLog(store)
    assert found.known == 3
    found.add("job", OTHER)
    assert [ReplayLog(store).replies("job") for _ in range(1)] == [ONE]
    assert ReplayLog(store).known == 4


def test_after_its_end_nothing_is_left_but_that(store: Store) -> None:
    written(store).end()
    found = ReplayLog(store)
    assert found.over and found.known == 0
    assert len(store) == 2


def test_where_the_store_is_gone_the_run_goes_on_without(store: Store) -> None:
    replay_log = written(store)
    store.fails_at = "aggverify"
    replay_log.add("job", ONE)
    replay_log.end()
    with pytest.raises(Gone):
        ReplayLog(store)


def test_names_differ_where_any_part_does() -> None:
    assert named("a", 1) == named("a", 1) != named("a", 2)
