"""``sequence_sum``: mean over rollouts of their sums.

sum l*m / N

Source: verl's seq-mean-token-sum.
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
    return [Fraction(1, step.num_rollouts)] * len(step.samples)


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    return mp.fsum(sums) / step.num_rollouts


MODE = Mode(
    name="sequence_sum",
    formula="sum l*m / N",
    citation="verl's seq-mean-token-sum",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
)
