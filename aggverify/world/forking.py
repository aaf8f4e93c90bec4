"""Forks, refused where CUDA runs: it does not survive a fork, in the child nothing of it works."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any


def cuda_runs() -> bool:
    """Whether CUDA has been initialised in this process; does not initialise it."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def fork() -> int:
    """``os.fork``; raises RuntimeError where CUDA has been initialised."""
    if cuda_runs():
        raise RuntimeError("CUDA was initialised in a process that forks ranks")
    with warnings.catch_warnings():
        # Beside threads that sleep (see threads.py), which Python 3.12 warns of.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
