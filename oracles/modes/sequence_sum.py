"""``sequence_sum``: mean over rollouts of their sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..policy import Policy
from ..step import Step
from .base import Mode, counts, number_of_units, unit_tokens
from .formula import Rows, by_rollout, counted, loss_sum


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    number = number_of_units(unit_tokens(counts(step, policy), step.rollouts), policy)
    return [Fraction(1, number)] * len(step.samples)


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    return loss_sum(rows) / max(len(counted(by_rollout(rows), policy.empty_units)), 1)


MODE = Mode(
    name="sequence_sum",
    formula="sum l*m / N",
    citation="verl's seq-mean-token-sum",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    asks=("empty_units", "denominators"),
    names={
        "verl": ("seq-mean-token-sum",),
        "TRL": ("luspo",),
        "ROLL": ("seq-mean-token-sum",),
    },
)
