"""Kinds of state the tests change; apart from the handlers, which only ranks may import."""

import os
import subprocess
import sys

# Being as nice as before takes a privilege, which root in a container need not have.
_PRIVILEGED = not subprocess.call(
    [sys.executable, "-c", "import os; os.nice(1); os.nice(-1)"], stderr=subprocess.DEVNULL
)
BEYOND_REPAIR = (
    "sys.modules lost", "threads", *(() if _PRIVILEGED else ("priority",))
)  # fmt: skip
CHANGED = (
    "torch default dtype", "torch default device",
    "torch grad mode", "torch anomaly mode",
    "torch threads", "torch deterministic algorithms", "torch random state",
    "numpy random state", "random state", "recursion limit", "sys.path", "environment",
    "working directory", "signal handlers", "subnormal numbers", "warning filters", "timer",
    "umask", "resource limits", *(("priority",) if _PRIVILEGED else ()),
    *(("processors",) if len(os.sched_getaffinity(0)) > 1 else ()),
    *BEYOND_REPAIR,
)  # fmt: skip
