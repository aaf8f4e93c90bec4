"""``prompt_mean``: mean over prompt groups of the group's token mean.

(1/P) * sum_g [ sum_{t in g} l*m / max(M_g, 1) ]

Source: DAPO, arXiv 2503.14476 (printed formula); ScaleRL, arXiv 2510.13786 section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from oracles.modes.base import Mode, mean_of_unit_means, unit_mean
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    return unit_mean(step, step.groups, policy)


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    return mean_of_unit_means(step, sums, step.groups, policy)


MODE = Mode(
    name="prompt_mean",
    formula="(1/P) * sum_g [ sum_{t in g} l*m / max(M_g, 1) ]",
    citation="DAPO, arXiv 2503.14476 (printed formula); ScaleRL, arXiv 2510.13786 section 3.2",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
)
