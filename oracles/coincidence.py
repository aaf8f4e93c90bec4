"""On which steps do modes have the same weights? Inputs there cannot tell them apart."""

from __future__ import annotations

from collections.abc import Iterable

import oracles
from oracles.step import Step


def tells_apart(step: Step, modes: Iterable[str], *, divisor: float = 16.0) -> bool:
    """Whether all these modes have pairwise different weights on the step."""
    found = [
        oracles.weights(name, step, divisor=divisor if oracles.MODES[name].needs_divisor else None)
        for name in modes
    ]
    return len(set(found)) == len(found)
