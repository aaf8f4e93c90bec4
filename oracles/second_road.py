"""The second road: each mode's printed formula in mpmath, correct to the last digit asked for.

Nothing but the step and the policy is shared with the exact rationals. The formula is evaluated
with more and more digits until its error bound no longer reaches a boundary between two results
(Ziv's strategy). When it still does at a precision beyond which two different results would be
distinguished, the value lies on the boundary itself, and is rounded from there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from mpmath import mp

from .errors import OracleError
from .evaluate import check_number
from .modes import Mode, mode
from .modes.base import exact_divisor, exact_number
from .modes.formula import Row
from .policy import DEFAULT_POLICY, Policy
from .step import Sample, Step

MAX_DIGITS = 100_000
_GUARD = 64
"""Bits beyond those asked for, at the first try and on top of what is proven to be enough."""
_ROUNDINGS = 64
"""Relative roundings one term can go through in any formula, with room to spare."""


def scalar_mp(
    name: str | Mode,
    step: Step,
    losses: Any,
    *,
    digits: int = 50,
    divisor: float | Fraction | None = None,
    policy: Policy = DEFAULT_POLICY,
    dtype: str | None = None,
) -> Any:
    """Return the step scalar as ``mpf``, rounded once, to nearest, to ``digits`` digits.

    Takes what ``scalar`` takes and raises OracleError as it does. mpmath's own precision is left
    as it was.
    """
    if isinstance(digits, bool) or not isinstance(digits, int) or not 1 <= digits <= MAX_DIGITS:
        raise OracleError(f"digits must be an integer from 1 to {MAX_DIGITS}, got {digits!r}")
    found = mode(name)
    exact = exact_divisor(found, divisor)
    values = _unmasked(step, losses, dtype)
    with mp.workdps(digits):
        target = mp.prec
    enough = _enough(found, step, values, policy, exact, target)
    precision = target + _GUARD
    while True:
        with mp.workprec(precision):
            value, error = _bracket(found, step, values, policy, exact)
            low, high = value - error, value + error
        with mp.workprec(target):
            if +low == +high:
                return +low
        if precision >= enough:
            return _on_the_boundary(low, high, value, target)
        precision = min(4 * precision, enough)


def _on_the_boundary(low: Any, high: Any, value: Any, target: int) -> Any:
    """Return the rounded value, knowing that the exact one is 0 or halfway between two results."""
    if low <= 0 <= high:
        return mp.mpf(0)
    with mp.workprec(target + 1):
        halfway = +value
    with mp.workprec(target):
        return +halfway


def _unmasked(step: Step, losses: Any, dtype: str | None) -> list[list[Fraction]]:
    """Unmasked losses of each sample, read one by one."""
    check_number(losses, step.num_response_tokens)
    kept = []
    for sample, start in zip(step.samples, step.offsets, strict=True):
        at = [start + t for t, bit in enumerate(sample.loss_mask) if bit]
        kept.append([_number(losses[i], dtype) for i in at])
    return kept


def _number(value: Any, dtype: str | None) -> Fraction:
    exact = _bfloat16(int(value)) if dtype == "bfloat16" else exact_number(value)
    if exact is None:
        raise OracleError(f"unmasked losses must be finite numbers, got {value!r}")
    return exact


def _bfloat16(bits: int) -> Fraction | None:
    """Return a bit pattern: sign, 8 exponent bits (bias 127), 7 fraction bits.

    None for NaN and Inf.
    """
    sign, exponent, fraction = -1 if bits >> 15 else 1, bits >> 7 & 0xFF, bits & 0x7F
    if exponent == 0xFF:
        return None
    significand = fraction + (128 if exponent else 0)
    return sign * significand * Fraction(2) ** (max(exponent, 1) - 134)


def _bracket(
    found: Mode,
    step: Step,
    values: Sequence[Sequence[Fraction]],
    policy: Policy,
    divisor: Fraction,
) -> tuple[Any, Any]:
    """Return the formula's value in the present precision, and a bound on its error.

    The bound is relative to ``sum |w l|``, which is the formula on absolute losses. Pairs have
    weights of both signs: for them the formula is taken of one sample's losses at a time.
    """
    rows = [
        Row(s.rollout, s.group, tuple(map(_mpf, kept)), _tokens(s, policy))
        for s, kept in zip(step.samples, values, strict=True)
    ]
    sizes = [Row(r.rollout, r.group, tuple(map(abs, r.losses)), r.tokens) for r in rows]
    value = found.scalar_mp(rows, policy, _mpf(divisor))
    parts = _with_one_sign(found, sizes)
    size = mp.fsum(abs(found.scalar_mp(part, policy, _mpf(divisor))) for part in parts)
    return value, mp.ldexp(size * 2 * (_ROUNDINGS + len(rows)), -mp.prec)


def _with_one_sign(found: Mode, sizes: Sequence[Row]) -> list[list[Row]]:
    """Return the rows as they are, or once for each row with the losses of all others left out."""
    if found.group_size is None:
        return [list(sizes)]
    return [
        [row if i == n else replace(row, losses=()) for n, row in enumerate(sizes)]
        for i in range(len(sizes))
    ]


def _tokens(sample: Sample, policy: Policy) -> int:
    """Ones in the mask of the denominators."""
    if policy.denominators == "original" and sample.original_mask is not None:
        return sum(sample.original_mask)
    return sum(sample.loss_mask)


def _mpf(value: Fraction) -> Any:
    return mp.mpf(value.numerator) / value.denominator


def _enough(
    found: Mode,
    step: Step,
    values: Sequence[Sequence[Fraction]],
    policy: Policy,
    divisor: Fraction,
    target: int,
) -> int:
    """Return a precision at which the error bound is smaller than any two boundaries are apart.

    The scalar is a fraction whose denominator has at most q bits, so it is 0 or at least 2^-q in
    magnitude. A boundary between two results of ``target`` bits is a multiple of
    2^-(q + target + 1): the two coincide or are 2^-(2q + target + 1) apart.
    """
    losses = [x for kept in values for x in kept]
    samples = [len(s.loss_mask) for s in step.samples]
    units = [samples, [sum(samples)]]
    for ids in ([s.rollout for s in step.samples], [s.group for s in step.samples]):
        totals: Counter[int] = Counter()
        for name, length in zip(ids, samples, strict=True):
            totals[name] += length
        units += [list(totals.values()), list(Counter(ids).values()), [len(totals)]]
    units.append([len(samples)])
    counted = sum(n.bit_length() + 1 for unit in units for n in unit)
    divided = divisor.numerator.bit_length() + divisor.denominator.bit_length()
    below = math.lcm(*[x.denominator for x in losses]).bit_length()
    q = found.degree * counted + divided + below
    largest = max([abs(x.numerator) // x.denominator for x in losses], default=0).bit_length()
    size = largest + sum(samples).bit_length() + divided + (policy.group_size or 1).bit_length() + 1
    return 2 * q + target + size + len(samples).bit_length() + _GUARD
