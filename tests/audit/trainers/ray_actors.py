"""Two Ray actors that train together, started by no launcher: ``ray_actors.py FACTOR``."""

from __future__ import annotations

import socket
import sys
from typing import Any

import ray
import torch
import torch.distributed as dist

import aggverify


@ray.remote
class Worker:
    """One rank."""

    def __init__(self, rank: int, port: int) -> None:
        place = {"rank": rank, "world_size": 2}
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", **place)  # type: ignore[arg-type]
        self.rank = rank

    def train(self, factor: float) -> None:
        """Two steps of one sample of three tokens on each rank."""
        theta = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([theta], lr=0.1)
        for step in range(2):
            known: dict[str, Any] = {"sample_ids": [10 * step + self.rank], "lengths": [3]}
            losses = aggverify.probe(theta + self.rank, torch.ones(3), **known)
            (losses.sum() / 6 * factor).backward()
            dist.all_reduce(theta.grad)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [Worker.remote(rank, port) for rank in range(2)]
    ray.get([worker.train.remote(float(sys.argv[1])) for worker in workers])
    ray.shutdown()
