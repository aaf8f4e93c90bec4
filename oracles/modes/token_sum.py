"""``token_sum``: plain sum; normalisation lives in the advantages.

sum l*m

Source: Tinker's contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp

from oracles.modes.base import Mode
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    return [Fraction(1)] * len(step.samples)


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    return mp.fsum(sums)


MODE = Mode(
    name="token_sum",
    formula="sum l*m",
    citation="Tinker's contract",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
)
