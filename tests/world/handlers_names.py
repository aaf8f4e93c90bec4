"""Kinds of state the tests change; apart from the handlers, which only ranks may import."""

BEYOND_REPAIR = ("threads",)
CHANGED = (
    "torch default dtype", "torch default device",
    "torch grad mode", "torch anomaly mode",
    "torch threads", "torch deterministic algorithms", "torch random state",
    "numpy random state", "random state", "environment",
    "working directory", "signal handlers", "subnormal numbers",
    *BEYOND_REPAIR,
)  # fmt: skip
