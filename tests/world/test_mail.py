"""Letters through a store: whole, in order, read once, and what is said when nobody answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from aggverify.world import PoolError, mail, rendezvous
from aggverify.world.mail import Post
from aggverify.world.rendezvous import RankInfo
from tests.waiting import wait_until
from tests.world.store import Store

SEAT = RankInfo(0, 2, "node0", 1)


@dataclass
class Desk:
    """What has come to one of them."""

    letters: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)

    def deliver(self, header: dict[str, Any], blob: bytes) -> None:
        self.letters.append((header, blob))


Open = Callable[..., tuple[Post, Desk]]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(rendezvous.RankInfo, "store", lambda seat: made)
    return made


@pytest.fixture
def opened(store: Store) -> Iterator[Open]:
    posts: list[Post] = []

    def make(name: str, seat: RankInfo = SEAT) -> tuple[Post, Desk]:
        desk = Desk()
        posts.append(Post(seat, name, desk.deliver, lambda *said: desk.lost.append(said)))
        return posts[-1], desk

    yield make
    store.fails_at = ""
    for post in posts:
        post.close()


def test_letters_arrive_whole_and_in_order_and_leave_nothing(store: Store, opened: Open) -> None:
    one, _ = opened("host/0")
    other, desk = opened("driver")
    large = bytes(range(256)) * 12_000
    for number in range(20):
        one.send("driver", {"number": number}, large if number == 7 else b"")
    wait_until(lambda: len(desk.letters) == 20)
    assert [header["number"] for header, _ in desk.letters] == list(range(20))
    assert desk.letters[7][1] == large
    other.close()
    one.close()
    assert {key.rpartition("/")[2] for key in store} <= {"letters", "beats"}
    assert not [thread for thread in threading.enumerate() if "_guarded" in thread.name]


def test_another_start_reads_no_letter_of_the_one_before(store: Store, opened: Open) -> None:
    one, _ = opened("host/0")
    one.send("driver", {"of": "before"})
    again, _ = opened("host/0", replace(SEAT, restarts=1))
    again.send("driver", {"of": "now"})
    _, desk = opened("driver", replace(SEAT, restarts=1))
    wait_until(lambda: bool(desk.letters))
    assert desk.letters == [({"of": "now"}, b"")]


def test_who_gives_no_sign_is_lost(
    store: Store, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "_BEAT", 0.02)
    monkeypatch.setattr(mail, "LOST", 0.5)
    one, _ = opened("host/0")
    two, _ = opened("host/1")
    driver, desk = opened("driver")
    wait_until(lambda: b"host/1/beats" in " ".join(store).encode())
    driver.watch(["host/0", "host/1"])
    two.close()
    wait_until(lambda: bool(desk.lost))
    assert desk.lost == [("host/1", "it has given no sign for 0.5 s")]
    one.send("driver", {})
    wait_until(lambda: bool(desk.letters))


def test_who_has_not_come_yet_has_more_time(
    store: Store, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "_BEAT", 0.02)
    monkeypatch.setattr(mail, "LOST", 0.1)
    monkeypatch.setattr(mail, "PATIENCE", 1.0)
    host, desk = opened("host/0")
    host.watch(["driver"])
    wait_until(lambda: int(store.get("aggverify/0/host/0/beats")) > 20)
    assert not desk.lost
    wait_until(lambda: bool(desk.lost))


def test_who_was_held_up_itself_blames_nobody(
    store: Store, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "_BEAT", 0.02)
    monkeypatch.setattr(mail, "LOST", 0.0)
    monkeypatch.setattr(mail, "PATIENCE", 0.0)
    monkeypatch.setattr(mail, "_HELD_UP", -1.0)
    host, desk = opened("host/0")
    host.watch(["driver"])
    wait_until(lambda: int(store.get("aggverify/0/host/0/beats")) > 10)
    assert not desk.lost


def test_who_ends_once_it_has_answered_is_not_waited_for_as_one_that_starts(
    store: Store, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least time in which it is missed is that of a process that was there."""
    monkeypatch.setattr(mail, "_BEAT", 60.0)
    host, desk = opened("host/0")
    opened("driver")[0].send("host/0", {"op": "hello"})
    wait_until(lambda: bool(desk.letters))
    host.close()
    monkeypatch.setattr(mail, "_BEAT", 0.02)
    monkeypatch.setattr(mail, "LOST", 0.1)
    other, missed = opened("other")
    other.watch(["host/0"])
    wait_until(lambda: bool(missed.lost))
    assert missed.lost == [("host/0", "it has given no sign for 0.1 s")]


def test_a_store_that_is_gone_is_told_in_one_line(store: Store, opened: Open) -> None:
    post, desk = opened("host/0")
    store.fails_at = "aggverify"
    said = "the launcher's store is gone: Connection was closed by remote peer"
    with pytest.raises(PoolError) as refused:
        post.send("driver", {})
    assert str(refused.value) == said
    wait_until(lambda: bool(desk.lost))
    assert desk.lost[0] == ("", said)
