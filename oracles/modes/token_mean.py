"""``token_mean``: sum l*m / max(M_step, 1) (DAPO's released code; verl token-mean)."""

from __future__ import annotations

from fractions import Fraction

from oracles.modes.base import Mode, count
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    total = sum(count(s, policy) for s in step.samples)
    if policy.phantom_tokens == "yes":
        total = sum(max(count(s, policy), 1) for s in step.samples)
    return [Fraction(1, max(total, 1))] * len(step.samples)


MODE = Mode(
    name="token_mean",
    formula="sum l*m / max(M_step, 1)",
    citation="DAPO's released code; verl token-mean",
    sample_weights=sample_weights,
)
