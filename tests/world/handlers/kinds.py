"""Handlers that are made or called in other ways."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from aggverify.world.backends import RankPlace
from aggverify.world.trace import TRACER

from .base import ACTS, Answer, Echo, Play, reduced
from .collectives import Skipper


class FailsInRanks(Echo):
    """Constructed well, but does not start on rank 1."""

    def start(self, place: RankPlace) -> None:
        super().start(place)
        if place.rank == 1:
            raise ValueError("not on rank 1")


class FailsAtFirst(Play):
    """Does not start on rank 1 until it was tried so many times."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        self.tries = Path(setup["tries"])

    def start(self, place: RankPlace) -> None:
        super().start(place)
        if place.rank == 1:
            with self.tries.open("a") as file:
                file.write("x")
            if len(self.tries.read_text()) <= self.setup["fails"]:
                raise OSError("no room")


class OwnWork(Play):
    """What a job names is done before the code under test is called, on the ranks ``own``."""

    def __call__(self, job: dict[str, Any]) -> Answer:
        TRACER.own(begins=self.rank in job.get("own", (0, 1)))
        return super().__call__(job)


class StartsAsleep(Play):
    """One rank of several never wakes while it starts."""

    def start(self, place: RankPlace) -> None:
        super().start(place)
        if place.rank == self.setup.get("rank") and place.size > 1:
            threading.Event().wait()


class StartsPolling(Play):
    """One rank of several looks for what never comes, while it starts."""

    def start(self, place: RankPlace) -> None:
        super().start(place)
        while place.rank == self.setup.get("rank") and place.size > 1:
            time.sleep(0.005)


class FailsToStart(Echo):
    """Fails in its constructor."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        ACTS[setup["act"]](self, setup)  # type: ignore[arg-type]


class ActsWhenMade(Play):
    """Does one thing in its constructor, and what a job names after that."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        ACTS[setup["act"]](self, setup)


class StartsThread(Echo):
    """Leaves a thread running after the import, which a fork would lose."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        self.beats = 0
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            self.beats += 1
            time.sleep(0.001)

    def __call__(self, job: dict[str, Any]) -> Answer:
        ends = time.process_time() + 1
        before = self.beats
        while self.beats == before and time.process_time() < ends:
            pass
        return {"alive": self.beats > before, "sum": reduced(1.0)}, b""


class LeavesNativeThread(Play):
    """Leaves a thread that never enters Python and sleeps; a job may need it."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        libc, self.made_in = ctypes.CDLL(None), os.getpid()
        pause = ctypes.cast(libc.pause, ctypes.c_void_p)
        assert libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, pause, None) == 0

    def __call__(self, job: dict[str, Any]) -> Answer:
        here = os.getpid() == self.made_in
        if job.get("needs") and not here:
            while True:
                time.sleep(3600)
        data, blob = super().__call__(job)
        return {**data, "imported_here": here}, blob


class Together(Skipper):
    """Takes several jobs in one dispatch, and tells how many it was given."""

    def together(self, jobs: list[dict[str, Any]], between: Callable[[], None]) -> UnderWay:
        answers: list[Answer] = []
        for job in jobs:
            data, _ = self(job)
            answers.append(({**data, "together": len(jobs)}, bytes([self.rank]) * len(answers)))
            between()
        return UnderWay(answers)


class UnderWay:
    """Answers that wait for the other ranks, as reduced gradients do, until they are asked for."""

    arrived = False

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers
        self._work = dist.all_reduce(torch.ones(1), async_op=True)

    def answers(self) -> list[Answer]:
        self._work.wait()
        return self._answers


class Prepares(Play):
    """Has first-use costs: processor time, a collective, global state. ``fails``: on that rank."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        self._prepared = False

    def preparation(self, jobs: list[dict[str, Any]]) -> Callable[[], None] | None:
        return None if self._prepared else self._prepare

    def _prepare(self) -> None:
        self._prepared = True
        reduced(1.0)
        ends = time.process_time() + self.setup["seconds"]
        while time.process_time() < ends:
            pass
        torch.set_default_dtype(torch.float64)
        if self.setup["fails"]:
            raise ValueError("cannot be prepared")
