"""Proven rounding bounds, exact rationals themselves; docs/bounds.md derives every one.

A fixed tolerance cannot do: 1e-5 lets a factor of 1 + 5e-6 pass in float32 and blames every right
reducer in bfloat16, whose weights are off by up to 1/256. A bound per dtype and number of roundings
needs no tuning; what it would have caught is printed with each verdict. A weight goes through as
many roundings in a long response as in a short one; a sum does not, and its bound is weaker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from .errors import OracleError
from .rounding import PRECISIONS, Precision, lowest

__all__ = [
    "PRECISIONS",
    "Precision",
    "caught",
    "lowest",
    "may_overflow",
    "relative",
    "scalar_bound",
    "smallest_caught",
    "weight_bound",
]


@lru_cache(maxsize=256)
def relative(roundings: int, precision: Precision) -> Fraction:
    """``(1 + u)^k - 1``: relative error of k successive roundings, without underflow."""
    if roundings < 0:
        raise OracleError(f"the number of roundings cannot be negative, got {roundings}")
    return (1 + precision.unit_roundoff) ** roundings - 1


def weight_bound(
    weight: Fraction,
    roundings: int,
    precision: Precision,
    *,
    amplification: Fraction | int = 1,
) -> Fraction:
    """Absolute bound on a weight after k roundings, each of which may underflow.

    ``amplification``: at least 1, and at least every product of factors still to come after one
    of the roundings; an underflow is multiplied by them.
    """
    _check_amplification(amplification)
    growth = relative(roundings, precision)
    underflow = roundings * precision.min_subnormal / 2 * amplification * (1 + growth)
    return abs(weight) * growth + underflow


def scalar_bound(
    magnitude: Fraction,
    additions: int | Sequence[int],
    roundings: int,
    precision: Precision,
    *,
    amplification: Fraction | int = 1,
) -> Fraction:
    """Absolute bound on a computed ``sum w*l``, in any order of addition.

    ``magnitude`` is ``sum |w*l|``. ``additions`` is the number of terms less one, or, where partial
    sums are scaled before they are added up again, that number for the largest sum of each level.
    Each term goes through ``roundings``, before or after the additions; ``amplification`` as in
    :func:`weight_bound`, losses that multiply weights included.
    """
    _check_amplification(amplification)
    levels = [additions] if isinstance(additions, int) else list(additions)
    if not levels or min(levels) < 0:
        raise OracleError(f"the number of additions cannot be negative, got {additions!r}")
    growth, underflow = _sum_errors(tuple(levels), roundings, precision)
    return magnitude * growth + underflow * amplification


@lru_cache(maxsize=1024)  # all cases of one step ask for the same bound
def _sum_errors(
    levels: tuple[int, ...], roundings: int, precision: Precision
) -> tuple[Fraction, Fraction]:
    """Return the error by rounding relative to the magnitude, and the absolute one by underflow."""
    growth = 1 + relative(roundings, precision)
    for level in levels:
        growth *= 1 + level * precision.unit_roundoff
    terms = math.prod(level + 1 for level in levels)
    return growth - 1, terms * roundings * precision.min_subnormal / 2 * growth


def _check_amplification(amplification: Fraction | int) -> None:
    if amplification < 1:
        raise OracleError(f"amplification is at least 1, got {amplification!r}")


def may_overflow(
    magnitude: Fraction,
    roundings: int,
    precision: Precision,
    *,
    amplification: Fraction | int = 1,
) -> bool:
    """Whether a quantity of this exact magnitude could be infinite after k roundings.

    Where it can, no bound holds for what is computed from it: a finding about range, not rounding.
    ``amplification`` as in :func:`weight_bound`.
    """
    error = weight_bound(magnitude, roundings, precision, amplification=amplification)
    return abs(magnitude) + error >= precision.overflow_at


def smallest_caught(bound: Fraction) -> Fraction | float:
    """Return ``2B / (1 - B)``: a true relative error above it is found despite all roundings.

    ``bound`` is relative. Infinity when it is 1 or more: such a bound is vacuous.
    """
    return 2 * bound / (1 - bound) if bound < 1 else math.inf


def caught(bound: Fraction, exact: Fraction) -> Fraction | float:
    """:func:`smallest_caught` of an absolute bound on a value; infinite where the value is 0."""
    return smallest_caught(bound / abs(exact)) if exact else math.inf
