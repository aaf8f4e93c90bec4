"""Two ranks of a script, as torchrun would start them: ``forked.py SCRIPT ARGUMENTS``.

They are forked from one process that has imported torch: one import, where torchrun takes three.
"""

from __future__ import annotations

import os
import runpy
import sys
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

import torch.distributed.tensor.parallel  # noqa: F401  # once for both ranks
from torch.distributed import TCPStore
from torch.multiprocessing.spawn import start_processes

HOST, WORLD = "127.0.0.1", 2


def run(rank: int, ports: SimpleQueue[int]) -> None:
    """Be that rank, of a store that the first process keeps as torchrun's agent does."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(ports.get()),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    ports: SimpleQueue[int] = get_context("fork").SimpleQueue()
    started = start_processes(run, (ports,), WORLD, join=False, start_method="fork")
    # Its thread must not be there when ranks are forked.
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    for _ in range(WORLD):
        ports.put(store.port)
    while not started.join():
        pass
