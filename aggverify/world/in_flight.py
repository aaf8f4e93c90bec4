"""Jobs on their way to a world, one in a dispatch or several together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from aggverify.world import answers
from aggverify.world.backends import Backend
from aggverify.world.faults import Job, Outcome
from aggverify.world.wire import MAX_FRAME, frame

_TOGETHER_BYTES = 1 << 18
"""Of the payloads that share a dispatch."""


class WorldKey(NamedTuple):
    """What a world is made for."""

    size: int
    backend: Backend


@dataclass(slots=True)
class Task:
    """A job on its way: where its outcome goes, and its payload as JSON text.

    ``alone``: no other job may be in flight with it, as something went wrong when others were.
    ``exclusive``: it is run by fresh ranks while no other ranks exist, as it failed for want of
    processes, memory or files next to others.
    """

    deliver: Callable[[Outcome], None]
    job: Job
    key: WorldKey
    text: bytes
    alone: bool = False
    exclusive: bool = False

    @property
    def shares(self) -> bool:
        """Whether others may be in its dispatch."""
        return self.job.together and not self.job.fresh


@dataclass(frozen=True, slots=True)
class Flight:
    """One dispatch: a task, or several together."""

    tasks: tuple[Task, ...]
    size: int

    @property
    def answer(self) -> int:
        """Bytes that a rank's reply may have."""
        each = (MAX_FRAME if t.job.answer is None else t.job.answer for t in self.tasks)
        return min(MAX_FRAME, answers.SMALL + sum(each))

    def frame(self) -> bytes:
        """Return what is sent to every rank."""
        if len(self.tasks) == 1:
            return frame(b'{"job":' + self.tasks[0].text + b"}")
        return frame(b'{"jobs":[' + b",".join(task.text for task in self.tasks) + b"]}")


def next_flight(waiting: deque[Task], most: int) -> Flight:
    """Take the next task, with those behind it that may share its dispatch."""
    tasks = [waiting.popleft()]
    size = len(tasks[0].text)
    while waiting and len(tasks) < most and tasks[0].shares and waiting[0].shares:
        size += len(waiting[0].text)
        if size > _TOGETHER_BYTES:
            size -= len(waiting[0].text)
            break
        tasks.append(waiting.popleft())
    return Flight(tuple(tasks), size)
