"""Exact sums of floating-point arrays: error-free extraction in blocks, a Fraction at the end.

Every block of a float64 array is split at a power of two into a part whose sum is exact in
float64 whatever the order, and a remainder that is again exact (Rump, Ogita and Oishi, "Accurate
floating-point summation", 2008, section 3); the remainder is split again until nothing is left.
The few partial sums are added as Fractions, so the result has no rounding at all.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from oracles.errors import OracleError

BLOCK = 1 << 15
"""Elements split together: small enough for the cache, large enough to amortise the calls."""
_LARGE = 2.0**960
"""Above this the split point itself would overflow; such elements are scaled down exactly."""
_SCALE = 200

Float64 = npt.NDArray[np.float64]


def as_float64(values: Any, dtype: str | None = None) -> Float64:
    """Any supported array as float64, exactly.

    ``values``: 1-D; float16, float32 or float64, integers below 2**53, a sequence of Python
    numbers, or, with ``dtype="bfloat16"``, the bit patterns as uint16.
    """
    if dtype == "bfloat16":
        bits = np.asarray(values)
        if bits.dtype != np.uint16:
            raise OracleError(f"bfloat16 values come as uint16 bit patterns, got {bits.dtype}")
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise OracleError(f"{array.dtype} has more precision than float64 and cannot be exact here")
    if array.dtype.kind not in "fiub" and array.size:
        raise OracleError(f"losses must be floating-point numbers, got an array of {array.dtype}")
    return array.astype(np.float64, copy=False)


def exact_sum(values: Float64) -> Fraction:
    """The sum of a 1-D float64 array without any rounding; raises OracleError on NaN, Inf."""
    total = Fraction(0)
    for start in range(0, values.size, BLOCK):
        total += _consume(values[start : start + BLOCK].copy())
    return total


def _consume(rest: Float64) -> Fraction:
    """The exact sum of a block, which is used up: what is left of it is 0 everywhere."""
    largest = _largest(rest)
    if not math.isfinite(largest):
        bad = rest[~np.isfinite(rest)][0]
        raise OracleError(f"unmasked losses must be finite, got {float(bad)!r}")
    if largest > _LARGE:
        huge = np.abs(rest) > _LARGE
        return (
            _consume(rest[~huge]) + _consume(np.ldexp(rest[huge], -_SCALE)) * Fraction(2) ** _SCALE
        )
    total, parts = Fraction(0), np.empty_like(rest)
    while largest:
        # All parts are multiples of ulp(split) and their sum stays below it: exact in any order.
        split = math.ldexp(1.0, math.frexp(largest)[1] + math.frexp(rest.size + 2)[1])
        np.add(rest, split, out=parts)
        np.subtract(parts, split, out=parts)
        total += Fraction(float(parts.sum()))
        np.subtract(rest, parts, out=rest)
        largest = _largest(rest)
    return total


def _largest(block: Float64) -> float:
    """Largest magnitude; NaN if there is one."""
    return max(float(block.max()), -float(block.min())) if block.size else 0.0


def masked_sums(values: Float64, masks: list[bytes], offsets: tuple[int, ...]) -> list[Fraction]:
    """Exact sum of the unmasked values of each sample; masked ones are never used."""
    sums = []
    for mask, start in zip(masks, offsets, strict=True):
        keep = np.frombuffer(mask, dtype=np.bool_)
        total = Fraction(0)
        for at in range(0, len(mask), BLOCK):
            part = values[start + at : start + min(at + BLOCK, len(mask))]
            total += _consume(np.where(keep[at : at + BLOCK], part, 0.0))
        sums.append(total)
    return sums
