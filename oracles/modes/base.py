"""What a mode is: a formula, its citation, and one exact weight per sample.

Everything here is the first road, exact rationals. The second road, in mpmath, shares only the
step and the policy with it; see formula.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import OracleError
from ..policy import Policy
from ..step import Step

SampleWeights = Callable[[Step, Policy, Fraction], list[Fraction]]
"""Exact weight of an unmasked token, per sample."""

ScalarMp = Callable[[Sequence[Any], Policy, Any], Any]
"""The second road: the formula itself in mpmath. Gets the rows of formula.py, the policy and the
divisor as ``mpf``; never sees the exact weights."""


@dataclass(frozen=True, slots=True)
class Mode:
    """An aggregation mode whose weight is the same for all unmasked tokens of a sample."""

    name: str
    formula: str
    citation: str
    sample_weights: SampleWeights
    scalar_mp: ScalarMp
    needs_divisor: bool = False
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Framework -> what a person writes there to get the mode; a name is taken for the mode."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Framework -> what else holds for it there."""
    caveats: Mapping[str, str] = field(default_factory=dict)
    """Name -> what it means elsewhere."""
    more_roundings: Callable[[int], int] = lambda rollouts: 0
    """Roundings beyond a handful on a weight's path in a step of so many rollouts: its denominator
    is a sum of quotients."""
    asks: tuple[str, ...] = ()
    """Questions of the policy that its weights depend on."""
    rows: int | None = None
    """The only size of a micro-batch, in samples, that the mode is defined for, filled in the order
    of the step; None: its weights depend on no layout."""
    group_size: int | None = None
    """Rollouts of every prompt, where it compares them: its weights have both signs."""
    degree: int = 1
    """A weight is a fraction whose denominator divides this power of the product of all counts."""


def counts(step: Step, policy: Policy) -> list[int]:
    """Tokens of each sample in a denominator."""
    if policy.denominators == "original":
        return [s.num_original for s in step.samples]
    return [s.num_unmasked for s in step.samples]


Units = Mapping[int, tuple[int, ...]]
"""Sample indices of each unit: rollouts, prompt groups, samples."""


def unit_tokens(tokens: Sequence[int], units: Units) -> list[int]:
    """Tokens of each unit."""
    return [sum([tokens[i] for i in members]) for members in units.values()]


def number_of_units(totals: Sequence[int], policy: Policy) -> int:
    """How many units a mean over units divides by; at least 1."""
    if policy.empty_units == "count":
        return len(totals)
    return max(sum(total > 0 for total in totals), 1)


def unit_mean(
    step: Step, tokens: Sequence[int], units: Units, number: int | Fraction
) -> list[Fraction]:
    """``1 / (number * M_u)`` for every sample of unit u, 0 where the unit has no tokens."""
    weights = [Fraction(0)] * len(step.samples)
    for members, total in zip(units.values(), unit_tokens(tokens, units), strict=True):
        if total:
            weight = Fraction(number.denominator, number.numerator * total)
            for i in members:
                weights[i] = weight
    return weights


def exact_divisor(mode: Mode, divisor: object) -> Fraction:
    """Return the divisor as an exact number.

    Raises OracleError when it is missing or cannot divide.
    """
    if not mode.needs_divisor:
        if divisor is not None:
            raise OracleError(f"mode {mode.name} takes no divisor, got {divisor!r}")
        return Fraction(1)
    if divisor is None:
        raise OracleError(f"mode {mode.name} needs a divisor (a positive finite number), got None")
    exact = exact_number(divisor)
    if exact is None or exact <= 0:
        raise OracleError(f"the divisor must be a positive finite number, got {divisor!r}")
    return exact


def exact_number(value: object) -> Fraction | None:
    """Return a finite number without rounding; None for anything else (truth values included)."""
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | Fraction):
        return Fraction(value)
    if isinstance(value, np.integer):
        return Fraction(int(value))
    if isinstance(value, float | np.float16 | np.float32) and math.isfinite(value):
        return Fraction(float(value))
    return None
