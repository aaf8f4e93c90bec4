"""Acts that change global state, or tell it."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .base import Play, act


def _numpy_seed() -> None:
    import numpy as np

    np.random.seed(5)


CHANGES: dict[str, Callable[[], Any]] = {
    "torch default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch default device": lambda: torch.set_default_device("meta"),
    "torch grad mode": lambda: torch.set_grad_enabled(False),
    "torch anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "torch threads": lambda: torch.set_num_threads(2),
    "torch deterministic algorithms": lambda: torch._C._set_deterministic_algorithms(True),
    "torch random state": lambda: torch.manual_seed(1),
    "numpy random state": _numpy_seed,
    "random state": lambda: random.seed(1),
    "environment": lambda: os.environ.update(AGGVERIFY_TEST="set"),
    "working directory": lambda: os.chdir("/"),
    "signal handlers": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "subnormal numbers": lambda: torch.set_flush_denormal(True),
    "threads": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
}


@act
def change_state(play: Play, job: dict[str, Any]) -> None:
    CHANGES[job["what"]]()


@act
def raise_after_change(play: Play, job: dict[str, Any]) -> None:
    CHANGES[job["what"]]()
    raise ValueError("changed")


@act
def look_at_state(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "random": [torch.rand(1).item(), random.random()],
        "variable": os.environ.get("AGGVERIFY_TEST"),
        "cwd": str(Path.cwd()),
        "sigint": str(signal.getsignal(signal.SIGINT)),
        "affinity": os.sched_getscheduler(0) == os.SCHED_BATCH,
    }


@act
def own_interpreter(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    """What a launch decides."""
    names = ("RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "OMP_NUM_THREADS")
    return {
        "hash": hash("name"),
        "collects": gc.isenabled(),
        "environment": {name: os.environ.get(name) for name in names},
    }
