"""What a mode is: a formula, its citation, and one exact weight per sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mpmath import mp

from oracles.errors import OracleError
from oracles.policy import Policy
from oracles.step import Sample, Step

SampleWeights = Callable[[Step, Policy, Fraction], list[Fraction]]
"""Exact weight of an unmasked token, per sample."""

ScalarMp = Callable[[Step, Sequence[Any], Policy, Any], Any]
"""The second road: the formula itself in mpmath. Gets the step, the sum of unmasked losses per
sample and the divisor as ``mpf``; never sees the exact weights."""


@dataclass(frozen=True)
class Mode:
    """An aggregation mode whose weight is the same for all unmasked tokens of a sample."""

    name: str
    formula: str
    citation: str
    sample_weights: SampleWeights
    scalar_mp: ScalarMp
    needs_divisor: bool = False
    names: Mapping[str, str] = field(default_factory=dict)


def count(sample: Sample, policy: Policy) -> int:
    """Tokens of a sample in a denominator."""
    if sample.original_mask is not None and policy.denominators == "original":
        return sample.original_mask.count(1)
    return sample.num_unmasked


Units = Mapping[int, tuple[int, ...]]
"""Sample indices of each unit: rollouts, prompt groups, samples."""


def counted_units(step: Step, units: Units, policy: Policy) -> list[tuple[int, ...]]:
    """The units that count in a mean over units: all, or those with a token."""
    if policy.empty_units == "count":
        return list(units.values())
    return [m for m in units.values() if any(count(step.samples[i], policy) for i in m)]


def unit_mean(step: Step, units: Units, policy: Policy) -> list[Fraction]:
    """``1 / (units * M_u)`` for every sample: the mean over units of the unit's token mean."""
    number = max(len(counted_units(step, units, policy)), 1)
    weights = [Fraction(0)] * len(step.samples)
    for members in units.values():
        tokens = sum(count(step.samples[i], policy) for i in members)
        weight = Fraction(1, number * max(tokens, 1))
        for i in members:
            weights[i] = weight
    return weights


def mean_of_unit_means(step: Step, sums: Sequence[Any], units: Units, policy: Policy) -> Any:
    """``(1/units) * sum_u [ sum of u's losses / max(M_u, 1) ]`` in mpmath."""
    total, number = mp.mpf(0), 0
    for members in units.values():
        tokens = sum(count(step.samples[i], policy) for i in members)
        if tokens or policy.empty_units == "count":
            number += 1
        total += mp.fsum(sums[i] for i in members) / max(tokens, 1)
    return total / max(number, 1)


def exact_divisor(mode: Mode, divisor: float | Fraction | None) -> Fraction:
    """The divisor as an exact number; raises OracleError when it is missing or cannot divide."""
    if not mode.needs_divisor:
        if divisor is not None:
            raise OracleError(f"mode {mode.name} takes no divisor, got {divisor!r}")
        return Fraction(1)
    if divisor is None:
        raise OracleError(f"mode {mode.name} needs a divisor (a positive finite number)")
    bad = isinstance(divisor, bool) or not isinstance(divisor, int | float | Fraction)
    if bad or not math.isfinite(divisor) or divisor <= 0:
        raise OracleError(f"the divisor must be a positive finite number, got {divisor!r}")
    return Fraction(divisor)
