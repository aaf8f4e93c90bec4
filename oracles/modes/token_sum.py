"""``token_sum``: sum l*m (Tinker's contract: normalisation lives in the advantages)."""

from __future__ import annotations

from fractions import Fraction

from oracles.modes.base import Mode
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    return [Fraction(1)] * len(step.samples)


MODE = Mode(
    name="token_sum",
    formula="sum l*m",
    citation="Tinker's contract: normalisation lives in the advantages",
    sample_weights=sample_weights,
)
