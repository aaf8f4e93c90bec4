"""Replies of jobs, kept in torchrun's store: a run that torchrun starts again goes on there.

The same run sends the same jobs in the same order. Those whose replies are kept are not sent to
ranks again; jobs that came to a fault, or had no outcome yet, are.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from typing import Any

from aggverify.world import mail, wire
from aggverify.world.faults import Outcome, Replies, Reply

_PART = "aggverify/so-far"


class ReplayLog:
    """The replies of one run.

    ``known``: how many earlier starts have kept. ``over``: whether an earlier start has come to its
    end.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._count: int = store.add(f"{_PART}/count", 0)
        self.known = self._count
        self.over: bool = store.add(f"{_PART}/over", 0) > 0
        self._replies: defaultdict[str, deque[Replies]] = defaultdict(deque)
        for number in range(1, self.known + 1):
            name, replies = _read(mail.get(store, f"{_PART}/{number}"))
            self._replies[name].append(replies)

    def replies(self, name: str) -> Replies | None:
        """Return kept replies of a job of that name, those of the next one at each call."""
        left = self._replies.get(name)
        return left.popleft() if left else None

    def add(self, name: str, outcome: Outcome) -> None:
        """Keep a job's replies; not where the store is gone, as no later start can read it then."""
        if not isinstance(outcome, Replies):
            return
        each = [(r.data, len(r.blob), r.changes, r.notes) for r in outcome.replies]
        blob = b"".join(r.blob for r in outcome.replies)
        try:
            key = f"{_PART}/{self._count + 1}"
            mail.put(self._store, key, wire.encode({"job": name, "replies": each}, blob))
            self._count = self._store.add(f"{_PART}/count", 1)
        except (RuntimeError, ValueError):
            pass

    def end(self) -> None:
        """Delete all replies: the run has come to its end."""
        try:
            self._store.add(f"{_PART}/over", 1)
            for number in range(1, self._count + 1):
                mail.delete(self._store, f"{_PART}/{number}")
            self._store.add(f"{_PART}/count", -self._count)
        except RuntimeError:
            pass


def named(*parts: object) -> str:
    """Return the name of a job, by all that its replies depend on."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _read(data: bytes) -> tuple[str, Replies]:
    [(header, blob)] = wire.Decoder().feed(data)
    replies, at = list[Reply](), 0
    for each, size, changes, notes in header["replies"]:
        replies.append(Reply(each, blob[at : at + size], tuple(changes), tuple(notes)))
        at += size
    return header["job"], Replies(tuple(replies))
