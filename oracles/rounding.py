"""Binary floating-point formats, and rounding to one of them exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from .errors import OracleError


@lru_cache(maxsize=64)
def _power_of_two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


@dataclass(frozen=True, slots=True)
class Precision:
    """A binary floating-point format: ``p`` significand bits, exponents of its normal range."""

    name: str
    p: int
    min_exponent: int
    max_exponent: int

    @property
    def unit_roundoff(self) -> Fraction:
        """The largest relative error of one rounding to nearest, u = 2^-p."""
        return _power_of_two(-self.p)

    @property
    def min_subnormal(self) -> Fraction:
        """The smallest positive number; a rounding below min_normal errs by at most half of it."""
        return _power_of_two(self.min_exponent - self.p + 1)

    @property
    def min_normal(self) -> Fraction:
        """The smallest number with all p bits."""
        return _power_of_two(self.min_exponent)

    @property
    def max_finite(self) -> Fraction:
        """The largest finite number."""
        return (2 - _power_of_two(1 - self.p)) * _power_of_two(self.max_exponent)

    @property
    def overflow_at(self) -> Fraction:
        """Half a unit above max_finite: what rounds to infinity (65,520 in float16)."""
        return (2 - self.unit_roundoff) * Fraction(2) ** self.max_exponent

    @property
    def counts_exactly_up_to(self) -> int:
        """2^p. Larger counts round, and adding ones one by one gets no further than this."""
        return int(2**self.p)

    def round(self, value: Fraction | int) -> Fraction | None:
        """Return the nearest number of this format, ties to even.

        None where that is an infinity.
        """
        exact = Fraction(value)
        if abs(exact) >= self.overflow_at:
            return None
        spacing = Fraction(2) ** (max(_exponent(exact), self.min_exponent) - self.p + 1)
        return round(exact / spacing) * spacing


def _exponent(value: Fraction) -> int:
    """Return the e with ``2^e <= |value| < 2^(e+1)``; 0 is treated as tiny."""
    size = abs(value)
    if not size:
        return -(2**20)
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if size >= Fraction(2) ** guess else guess - 1


PRECISIONS: Mapping[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("float64", 53, -1022, 1023),
        Precision("float32", 24, -126, 127),
        Precision("float16", 11, -14, 15),
        Precision("bfloat16", 8, -126, 127),
    )
}


def lowest(names: Iterable[str]) -> Precision:
    """Return the precision with the fewest bits on a path.

    Raises OracleError for an unknown name.
    """
    given = list(names)
    unknown = [name for name in given if name not in PRECISIONS]
    if unknown or not given:
        wrong: object = unknown[0] if unknown else given
        raise OracleError(f"precisions are {', '.join(PRECISIONS)}, got {wrong!r}")
    return min((PRECISIONS[name] for name in given), key=lambda precision: precision.p)
