"""Powers of token counts, for families whose weights depend on a power of the length."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from ..errors import OracleError

LARGEST_EXPONENT = 8
LARGEST_ROOT = 100
ROOT_BITS = 320
"""Where a root is irrational its weights are cut after so many bits: a relative error of 2^-320,
far below the rounding of any format; rational weights are exact."""


def checked_exponent(name: str, value: Fraction) -> Fraction:
    """Return an exponent whose powers can be formed; raises OracleError for any other."""
    if not 0 <= value <= LARGEST_EXPONENT:
        raise OracleError(f"{name} must be from 0 to {LARGEST_EXPONENT}, got {value}")
    if value.denominator > LARGEST_ROOT:
        raise OracleError(
            f"{name} must be a fraction with a denominator up to {LARGEST_ROOT}, got {value}; "
            f"write it as a decimal or a fraction, for example 0.75 or 3/4"
        )
    return value


def power(count: int, exponent: Fraction) -> Fraction:
    """``count ** exponent`` for a positive count: exact where rational, else to ROOT_BITS bits."""
    if exponent < 0:
        return 1 / power(count, -exponent)
    whole = count**exponent.numerator
    root = _integer_root(whole, exponent.denominator)
    if root**exponent.denominator == whole:
        return Fraction(root)
    shifted = whole << (exponent.denominator * ROOT_BITS)
    return Fraction(_integer_root(shifted, exponent.denominator), 1 << ROOT_BITS)


def _integer_root(value: int, n: int) -> int:
    """Return the largest r with ``r ** n <= value``, by Newton's method from above."""
    root = 1 << -(-value.bit_length() // n)
    while True:
        better = ((n - 1) * root + value // root ** (n - 1)) // n
        if better >= root:
            return root
        root = better


def power_mp(count: int, exponent: Fraction) -> Any:
    """``count ** exponent`` in mpmath, from an exact integer power and one root."""
    root = mp.root(mp.mpf(count) ** abs(exponent.numerator), exponent.denominator)
    return root if exponent >= 0 else 1 / root
