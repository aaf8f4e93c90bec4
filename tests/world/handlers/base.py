"""Handlers that answer, and the acts one of them is asked for by name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from aggverify.world.backends import RankPlace

Answer = tuple[dict[str, Any], bytes]


class Echo:
    """Answers with its place, the sum over the ranks, and the job."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        self.rank = 0

    def describe(self) -> dict[str, Any]:
        return {"setup": self.setup, "threads": threading.active_count()}

    def start(self, place: RankPlace) -> None:
        self.place, self.rank = place, place.rank

    def __call__(self, job: dict[str, Any]) -> Answer:
        total = reduced(float(self.rank + 1))
        data = {"rank": self.rank, "size": dist.get_world_size(), "sum": total, "job": job}
        data["device"] = self.place.device
        return data, bytes([self.rank])


def reduced(value: float, **options: Any) -> float:
    total = torch.tensor([value], dtype=torch.float32, device="cpu")
    dist.all_reduce(total, **options)
    return total.item()


class Play(Echo):
    """Does what the job names, on the ranks it names (``on``: all when absent), then reduces."""

    def __call__(self, job: dict[str, Any]) -> Answer:
        extra: dict[str, Any] = {}
        if self.rank in job.get("on", range(dist.get_world_size())):
            extra = ACTS[job["act"]](self, job) or {}
        return {"sum": reduced(1.0), "pid": os.getpid(), **extra}, b""


Act = Callable[[Play, dict[str, Any]], dict[str, Any] | None]

ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    ACTS[function.__name__] = function
    return function
