"""Exact sums and dot products of floating-point arrays, of any dtype, in any order.

The array is read in blocks as float64, which holds every narrower number, and every product of two,
exactly. extraction.py takes each block apart, and its few float64 parts are added as integers:
nothing is rounded, and no more than a block is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import OracleError
from .extraction import BLOCK, Float64, largest, parts, two_products

_UNIT = 1074
"""Every float64 is a whole number of 2**-1074."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A 1-D array of floating-point numbers, whatever its dtype, and how to read it exactly."""

    raw: npt.NDArray[Any]
    dtype: str

    @property
    def is_narrow(self) -> bool:
        """Whether products of two such numbers are float64 numbers."""
        return self.dtype != "float64"

    def block(self, start: int, end: int) -> Float64:
        """Return a copy of a part as float64."""
        part = self.raw[start:end]
        if self.dtype == "bfloat16":
            part = (part.astype(np.uint32) << 16).view(np.float32)
        return part.astype(np.float64)


def read(values: Any, dtype: str | None = None) -> Numbers:
    """Read a flat float16, float32 or float64 array, or with "bfloat16" uint16 bit patterns.

    Raises OracleError for anything else: integers and Fractions need no such care, and long
    doubles would not be read exactly.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise OracleError(f"numbers come as a flat array, got shape {array.shape}")
    if dtype == "bfloat16":
        if array.dtype != np.uint16:
            raise OracleError(f"bfloat16 values come as uint16 bit patterns, got {array.dtype}")
        return Numbers(array, dtype)
    if dtype is not None and dtype != array.dtype.name:
        raise OracleError(f"dtype is bfloat16 or the array's own {array.dtype}, got {dtype!r}")
    if array.dtype.name not in ("float16", "float32", "float64"):
        raise OracleError(f"numbers come as float16, float32 or float64, got {array.dtype}")
    return Numbers(array, array.dtype.name)


def exact_sum(values: Any, mask: bytes | None = None, *, dtype: str | None = None) -> Fraction:
    """Return the sum of a flat array without any rounding; values behind the mask are skipped.

    ``mask`` has one byte, 0 or 1, per value. Raises OracleError for NaN and infinities outside it.
    """
    numbers = read(values, dtype)
    return masked_sums(numbers, [_mask(mask, len(numbers.raw))])[0]


def exact_dot(
    left: Any,
    right: Any,
    mask: bytes | None = None,
    *,
    left_dtype: str | None = None,
    right_dtype: str | None = None,
) -> Fraction:
    """``sum left * right`` without any rounding, for any two dtypes; as :func:`exact_sum`."""
    a, b = read(left, left_dtype), read(right, right_dtype)
    if len(a.raw) != len(b.raw):
        raise OracleError(f"the factors must be as long as each other: {len(a.raw)}, {len(b.raw)}")
    keep = np.frombuffer(_mask(mask, len(a.raw)), dtype=np.bool_)
    total = Fraction(0)
    for start in range(0, len(keep), BLOCK):
        end = min(start + BLOCK, len(keep))
        x, y = (_kept(n, keep, start, end) for n in (a, b))
        for block in (x, y):
            _finite(block, start)
        whole = np.zeros(1, dtype=np.intp)
        products = [(x * y, 0)] if a.is_narrow and b.is_narrow else two_products(x, y)
        for product, scale in products:
            units = sum(_units(p[0]) << s for p, s in parts(product, whole, largest(product)))
            total += Fraction(units, 1 << _UNIT) * Fraction(2) ** scale
    return total


def masked_sums(numbers: Numbers, masks: Sequence[bytes]) -> list[Fraction]:
    """Exact sums of consecutive stretches, one per mask; masked values are never used."""
    keep = np.frombuffer(b"".join(masks), dtype=np.bool_)
    ends = list(accumulate(map(len, masks), initial=0))
    owners = [i for i, mask in enumerate(masks) if mask]
    starts = np.array([ends[i] for i in owners], dtype=np.intp)
    totals = [0] * len(masks)
    for start in range(0, len(keep), BLOCK):
        end = min(start + BLOCK, len(keep))
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, end, side="left"))
        cuts = np.maximum(starts[first:last], start) - start
        block = _kept(numbers, keep, start, end)
        for sums, scale in parts(block, cuts, _finite(block, start)):
            for owner, part in zip(owners[first:last], sums, strict=True):
                if part:
                    totals[owner] += _units(part) << scale
    return [_in_units(total) for total in totals]


def _kept(numbers: Numbers, keep: npt.NDArray[np.bool_], start: int, end: int) -> Float64:
    """Return a block with 0 in place of what is masked, whatever it was."""
    block, inside = numbers.block(start, end), keep[start:end]
    if not inside.all():
        # Clearing bits is four times as fast as assigning by a ragged mask.
        block.view(np.int64)[:] &= np.subtract(0, inside.view(np.int8), dtype=np.int64)
    return block


def _finite(block: Float64, start: int) -> float:
    """Return the largest magnitude in a block that begins at token ``start``.

    Raises OracleError where it is not finite.
    """
    found = largest(block)
    if not math.isfinite(found):
        at = int(np.flatnonzero(~np.isfinite(block))[0])
        raise OracleError(
            f"unmasked losses must be finite, got {float(block[at])!r} at token {start + at}"
        )
    return found


def _mask(mask: bytes | None, length: int) -> bytes:
    if mask is None:
        return b"\1" * length
    if len(mask) != length or mask.strip(b"\0\1"):
        raise OracleError(
            f"the mask must have one byte, 0 or 1, for each of the {length} values, "
            f"got {len(mask)} bytes, the largest {max(mask, default=0)}"
        )
    return mask


def _units(value: float) -> int:
    """Return a float64 as a whole number of 2**-1074."""
    fraction, exponent = math.frexp(value)
    shift = exponent - 53 + _UNIT
    significand = int(math.ldexp(fraction, 53))
    return significand << shift if shift >= 0 else significand >> -shift


def _in_units(total: int) -> Fraction:
    """``total * 2**-1074`` in lowest terms, without a gcd of thousands of bits."""
    zeros = min((total & -total).bit_length() - 1, _UNIT) if total else _UNIT
    return Fraction(total >> zeros, 1 << (_UNIT - zeros))
