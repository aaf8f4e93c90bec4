"""``sequence_sum``: sum l*m / N (verl seq-mean-token-sum)."""

from __future__ import annotations

from fractions import Fraction

from oracles.modes.base import Mode
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    return [Fraction(1, step.num_rollouts)] * len(step.samples)


MODE = Mode(
    name="sequence_sum",
    formula="sum l*m / N",
    citation="verl seq-mean-token-sum",
    sample_weights=sample_weights,
)
