"""Kinds of state the tests change; apart from the handlers, which only ranks may import."""

import os
import subprocess
import sys
from importlib.metadata import version

# Being as nice as before takes a privilege, which root in a container need not have.
_PRIVILEGED = not subprocess.call(
    [sys.executable, "-c", "import os; os.nice(1); os.nice(-1)"], stderr=subprocess.DEVNULL
)
# In torch 2.6 get_default_device raises once the default was taken back.
_KEPT_DEVICE = ("torch default device",) * version("torch").startswith("2.6.")
BEYOND_REPAIR = (
    "sys.modules lost", "threads", *(() if _PRIVILEGED else ("priority",)), *_KEPT_DEVICE
)  # fmt: skip
CHANGED = (
    "torch default dtype", *(() if _KEPT_DEVICE else ("torch default device",)),
    "torch grad mode", "torch anomaly mode",
    "torch threads", "torch deterministic algorithms", "torch random state",
    "numpy random state", "random state", "recursion limit", "sys.path", "environment",
    "working directory", "signal handlers", "subnormal numbers", "warning filters", "timer",
    "umask", "resource limits", *(("priority",) if _PRIVILEGED else ()),
    *(("processors",) if len(os.sched_getaffinity(0)) > 1 else ()),
    *BEYOND_REPAIR,
)  # fmt: skip
