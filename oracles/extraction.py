"""Error-free extraction: a block of float64 numbers as a few numbers with the same exact sum.

Rump, Ogita and Oishi, "Accurate floating-point summation I: faithful rounding", SIAM J. Sci.
Comput. 31 (2008), section 3. Take n numbers of magnitude at most m, and a power of two s with
(n + 2) m < s. Then q = (x + s) - s is computed without error, is a multiple of s * 2^-53, and so
is every partial sum of the q; these stay below s, so they are float64 numbers and the q may be
added in any order without rounding. What is left, x - q, is again exact and at most s * 2^-53.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

BLOCK = 1 << 15
"""Numbers taken apart together: they fit the cache, and calls cost little compared with the
work."""

_LARGE = 2.0**960
"""Above this s could overflow; such numbers are scaled down, which is exact so far from 0."""
_DOWN = 200
_FEW = 16
"""Up to so many segments a sum for each is faster than one segmented sum."""
_BUCKET = 512
_SPLITTER = 2.0**27 + 1
_MODERATE = 2.0**900
"""Products in between its reciprocal and itself leave room for their errors and for sums."""


def parts(
    rest: Float64, cuts: npt.NDArray[np.intp], bound: float, scale: int = 0
) -> Iterator[tuple[list[float], int]]:
    """Segment sums in pieces: the exact sums are the totals of ``value * 2**scale``.

    ``rest`` is finite, its magnitudes at most ``bound``, and is used up; ``cuts`` are the
    segments' starts, increasing, the first 0.
    """
    if bound > _LARGE:
        huge = np.abs(rest) > _LARGE
        scaled = np.where(huge, rest, 0.0) * 2.0**-_DOWN
        yield from parts(scaled, cuts, largest(scaled), scale + _DOWN)
        rest[huge] = 0.0
        bound = largest(rest)
    extracted = np.empty_like(rest)
    while bound:
        split = math.ldexp(1.0, math.frexp(bound)[1] + (rest.size + 2).bit_length())
        np.add(rest, split, out=extracted)
        np.subtract(extracted, split, out=extracted)
        yield _segment_sums(extracted, cuts), scale
        np.subtract(rest, extracted, out=rest)
        bound = largest(rest)


def largest(block: Float64) -> float:
    """Largest magnitude; not finite where something in the block is not."""
    high, low = float(block.max()), float(block.min())
    return max(high, -low) if high == high else high


def _segment_sums(values: Float64, cuts: npt.NDArray[np.intp]) -> list[float]:
    if len(cuts) > _FEW:
        return [float(s) for s in np.add.reduceat(values, cuts).tolist()]
    ends = [*cuts[1:].tolist(), len(values)]
    return [float(values[a:b].sum()) for a, b in zip(cuts.tolist(), ends, strict=True)]


def two_products(x: Float64, y: Float64) -> Iterator[tuple[Float64, int]]:
    """Arrays, each with a power of two, whose scaled sums add up to ``sum x * y``.

    Dekker's product, on the numbers themselves where nothing can under- or overflow. Otherwise
    on their significands, which are in [1/2, 1); the exponents are put back up to multiples of
    2**512, which come out as the scale.
    """
    (low_x, high_x), (low_y, high_y) = _range(x), _range(y)
    if low_x * low_y > 1 / _MODERATE and max(high_x, high_y, high_x * high_y) < _MODERATE:
        yield np.concatenate(_dekker(x, y)), 0
        return
    significand_x, exponent_x = np.frexp(x)
    significand_y, exponent_y = np.frexp(y)
    product, error = _dekker(significand_x, significand_y)
    exponent = exponent_x + exponent_y
    bucket = exponent // _BUCKET
    for b in np.unique(bucket).tolist():
        here = bucket == b
        shift = exponent[here] - b * _BUCKET
        yield np.ldexp(np.concatenate((product[here], error[here])), np.tile(shift, 2)), b * _BUCKET


def _range(x: Float64) -> tuple[float, float]:
    """Smallest and largest magnitude, zeros aside."""
    size = np.abs(x)
    return float(size.min(where=size > 0, initial=np.inf)), float(size.max())


def _dekker(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """``x * y`` as the rounded product and its exact error."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    return product, error


def _halves(x: Float64) -> tuple[Float64, Float64]:
    """Veltkamp's splitting into numbers of at most 26 bits."""
    scaled = _SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high
