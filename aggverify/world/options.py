"""The pool's backend and limits, validated where they are given."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields

from aggverify.errors import InputError
from aggverify.world.backends import GLOO, Backend
from aggverify.world.sandbox import Sandbox

MOST_HELPERS = 64 + 2 * (os.cpu_count() or 1)
"""Processes below one rank, whose code may well start a helper for every processor."""
MOST_PROCESSES = 4 * MOST_HELPERS
"""Processes below one template process: a run has up to two dozen ranks at a time, and code under
test may start a few helpers in each."""
MOST_THREADS = 4 * MOST_PROCESSES
"""Threads of all processes below one template: a run has up to four hundred."""
MAX_RANKS = 64
"""Ranks of one world."""
LEAST_MEMORY = 1 << 30
SHARE_OF_MEMORY = 0.75
"""All processes below a template may together hold this share of the memory that is free when the
launcher starts, or ``LEAST_MEMORY`` if that is more. One rank has its own limit, ``memory``."""


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of ranks, in seconds and bytes, and their backend.

    ``cpu_seconds``: a rank's own processor time in one job before it counts as running away.
    ``cpu_seconds_after``: the same once a job has run away; less where a search follows.
    ``patience``: how long a world may be silent before it is looked at for being blocked; raise
    it for code that sleeps, or waits for something outside the machine, on purpose.
    ``second_look``: how long a rank must have slept outside any collective to count as blocked.
    ``silence``: wall-clock limit without any progress, where the other two do not show it.
    ``silence_after``: the same once a job was ended by ``silence``.
    ``memory``: address space of a rank beyond what it started with.
    ``import_memory``: what the handler's construction may write to beyond what torch takes.
    ``import_seconds``: processor time of the handler's construction, and of what it prepares for
    jobs. ``import_patience``: how long the construction may sleep or wait.
    ``printed``: bytes that a rank may write to its streams in one job, and the construction.
    ``turn``: called again and again while something is waited for; what it raises ends that.
    ``backend``: what ranks are joined by. ``sandbox``: where the launcher and all below it live.
    ``preload``: the module of the pool's handlers, which the launcher imports once for all of them.
    """

    cpu_seconds: float = 2.0
    cpu_seconds_after: float = 2.0
    patience: float = 0.03
    second_look: float = 1.0
    silence: float = 120.0
    silence_after: float = 120.0
    memory: int = 1 << 30
    import_memory: int = 1 << 32
    import_seconds: float = 120.0
    import_patience: float = 10.0
    printed: int = 1 << 28
    turn: Callable[[], None] = lambda: None
    backend: Backend = GLOO
    sandbox: Sandbox | None = None
    preload: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.backend, Backend):
            raise InputError(f"backend must be a Backend, not {self.backend!r}")
        for name, value in self.limits().items():
            ok = isinstance(value, int | float) and not isinstance(value, bool)
            if not ok or not math.isfinite(value) or value <= 0:
                raise InputError(f"{name} must be a positive finite number, not {value!r}")

    def limits(self) -> dict[str, float]:
        """Return all that are numbers, by their names."""
        numbers = (f.name for f in fields(self) if f.type in ("int", "float"))
        return {name: getattr(self, name) for name in numbers}
