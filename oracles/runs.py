"""Run-length form of long sequences in JSON: ``{"runs": [[value, count], ...]}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import OracleError

MAX_TOKENS = 1 << 26
"""Response tokens of a step read from JSON: a few bytes must not ask for all memory there is."""
SAVING = 8
"""Runs are written only where there are at least so many times as many elements as runs."""


def starts_of_runs(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where a new value begins; float values compare by bits, so that signs of zeros stay."""
    bits = values.view(np.int64) if values.dtype == np.float64 else values
    return np.concatenate(([0], np.flatnonzero(bits[1:] != bits[:-1]) + 1))


def runs(data: object) -> list[tuple[Any, int]] | None:
    """Return the ``(value, count)`` pairs of a run-length form; None when it is none.

    Raises OracleError for counts that are not positive integers.
    """
    if not isinstance(data, Mapping) or set(data) != {"runs"}:
        return None
    pairs = data["runs"]
    if not isinstance(pairs, list):
        raise OracleError(f"runs are a list of [value, count], got {type(pairs).__name__}")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise OracleError(f"a run is [value, count], got {pair!r:.80}")
        if type(pair[1]) is not int or pair[1] < 1:
            raise OracleError(f"the count of a run must be a positive integer, got {pair[1]!r:.80}")
    return [(value, count) for value, count in pairs]


def length(data: object) -> int:
    """Elements a text or run-length form stands for, without making them."""
    if data is None or isinstance(data, str):
        return len(data or "")
    return sum(count for _, count in runs(data) or ())
