"""Proven rounding bounds, exact rationals themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format: ``p`` significand bits, exponents of its normal range."""

    name: str
    p: int
    min_exponent: int
    max_exponent: int

    @property
    def unit_roundoff(self) -> Fraction:
        """u = 2^-p: the largest relative error of one rounding to nearest."""
        return Fraction(1, 2**self.p)

    @property
    def min_subnormal(self) -> Fraction:
        return Fraction(2) ** (self.min_exponent - self.p + 1)

    @property
    def min_normal(self) -> Fraction:
        return Fraction(2) ** self.min_exponent

    @property
    def max_finite(self) -> Fraction:
        return (2 - Fraction(2) ** (1 - self.p)) * Fraction(2) ** self.max_exponent


PRECISIONS: Mapping[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("float64", 53, -1022, 1023),
        Precision("float32", 24, -126, 127),
        Precision("float16", 11, -14, 15),
        Precision("bfloat16", 8, -126, 127),
    )
}


@lru_cache(maxsize=256)
def relative(roundings: int, precision: Precision) -> Fraction:
    """``(1 + u)^k - 1``: relative error of k successive roundings, without underflow."""
    return (1 + precision.unit_roundoff) ** roundings - 1


def weight_bound(weight: Fraction, roundings: int, precision: Precision) -> Fraction:
    """Absolute bound on a weight after k roundings, each of which may underflow."""
    return abs(weight) * relative(roundings, precision) + roundings * precision.min_subnormal / 2


def scalar_bound(
    magnitude: Fraction, additions: int, roundings: int, precision: Precision
) -> Fraction:
    """Absolute bound on a computed sum(w*l), any order of addition.

    ``magnitude`` is sum(abs(w*l)). The additions contribute (n-1)u (Jeannerod and Rump 2013, valid
    for every n), the roundings of each term (1+u)^k.
    """
    u = precision.unit_roundoff
    growth = (1 + additions * u) * (1 + u) ** roundings - 1
    return magnitude * growth + (additions + roundings) * precision.min_subnormal / 2


def smallest_caught(bound: Fraction) -> Fraction:
    """A relative error above ``2B / (1 - B)`` is beyond B whatever the roundings did."""
    return 2 * bound / (1 - bound) if bound < 1 else Fraction(10**9)
