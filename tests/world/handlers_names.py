"""Kinds of state the tests change; apart from the handlers, which only ranks may import."""

BEYOND_REPAIR = ("sys.modules lost", "threads")
CHANGED = (
    "torch default dtype", "torch default device", "torch grad mode", "torch anomaly mode",
    "torch threads", "torch deterministic algorithms", "torch random state",
    "numpy random state", "random state", "recursion limit", "sys.path", "environment",
    "working directory", "signal handlers", "subnormal numbers", "warning filters", "timer",
    *BEYOND_REPAIR,
)  # fmt: skip
