"""Handlers for the pool's tests; imported in template and rank processes only."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class Echo:
    """Answers with its rank, the world's size and the sum of what the ranks hold."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        self.place = (0, 1)

    def describe(self) -> dict[str, Any]:
        return {"setup": self.setup}

    def start(self, rank: int, world_size: int) -> None:
        self.place = (rank, world_size)

    def __call__(self, job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        rank, size = self.place
        total = torch.tensor([float(rank + 1)])
        dist.all_reduce(total)
        data = {"rank": rank, "size": dist.get_world_size(), "sum": total.item(), "job": job}
        return data, bytes([rank])
