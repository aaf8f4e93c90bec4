"""Room for large steps within a rank's memory limit."""

from __future__ import annotations

import resource
from functools import cache

LARGE = 1_000_000
VECTORS = 32
"""Float64 vectors over a step's tokens that a rank may need at a time, the candidate's included."""


def make_room(tokens: int) -> None:
    """Raise this rank's memory limit for a step too large for the usual one."""
    usual, hard = _usual_limit(resource.RLIMIT_AS)
    if tokens <= LARGE or usual == resource.RLIM_INFINITY:
        return
    wanted = usual + 8 * VECTORS * tokens
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def peak(tokens: int) -> int:
    """Bytes that this process has held at most, where a step of so many tokens is large; else 0."""
    if tokens <= LARGE:
        return 0
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@cache
def _usual_limit(which: int) -> tuple[int, int]:
    return resource.getrlimit(which)
