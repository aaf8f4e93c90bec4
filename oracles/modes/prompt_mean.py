"""``prompt_mean``: (1/P) * sum_g [ sum_{t in g} l*m / max(M_g, 1) ] (DAPO's printed formula; ScaleRL, arXiv 2510.13786 section 3.2)."""

from __future__ import annotations

from fractions import Fraction

from oracles.modes.base import Mode, unit_mean
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    return unit_mean(step, step.groups, policy)


MODE = Mode(
    name="prompt_mean",
    formula="(1/P) * sum_g [ sum_{t in g} l*m / max(M_g, 1) ]",
    citation="DAPO's printed formula; ScaleRL, arXiv 2510.13786 section 3.2",
    sample_weights=sample_weights,
)
