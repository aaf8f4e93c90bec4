"""``token_mean``: mean over all unmasked tokens of the step.

sum l*m / max(M_step, 1)

Source: DAPO's released code (it divides by the tokens of the batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp

from oracles.modes.base import Mode, count
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    total = sum(count(s, policy) for s in step.samples)
    if policy.phantom_tokens == "yes":
        total = sum(max(count(s, policy), 1) for s in step.samples)
    return [Fraction(1, max(total, 1))] * len(step.samples)


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    floor = 1 if policy.phantom_tokens == "yes" else 0
    tokens = sum(max(count(s, policy), floor) for s in step.samples)
    return mp.fsum(sums) / max(tokens, 1)


MODE = Mode(
    name="token_mean",
    formula="sum l*m / max(M_step, 1)",
    citation="DAPO's released code (it divides by the tokens of the batch)",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
)
