"""``prompt_mean``: mean over prompt groups of the group's token mean."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from ..policy import Policy
from ..step import Step
from .base import Mode, counts, number_of_units, unit_mean, unit_tokens
from .formula import Rows, by_group, by_rollout, counted, token_mean


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    tokens = counts(step, policy)
    number: int | Fraction = number_of_units(unit_tokens(tokens, step.groups), policy)
    if policy.prompt_count == "rollouts_over_group_size":
        rollouts = number_of_units(unit_tokens(tokens, step.rollouts), policy)
        number = Fraction(rollouts, policy.group_size)
    return unit_mean(step, tokens, step.groups, number)


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    groups = counted(by_group(rows), policy.empty_units)
    total = mp.fsum(map(token_mean, groups))
    if policy.prompt_count == "rollouts_over_group_size":
        rollouts = counted(by_rollout(rows), policy.empty_units)
        return total * policy.group_size / max(len(rollouts), 1)
    return total / max(len(groups), 1)


MODE = Mode(
    name="prompt_mean",
    formula="(1/P) * sum_g [ sum_{t in g} l*m / max(M_g, 1) ]",
    citation="DAPO, arXiv 2503.14476 (printed formula); ScaleRL, arXiv 2510.13786 section 3.2",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    asks=("empty_units", "denominators", "prompt_count", "group_size"),
    names=dict.fromkeys(("slime", "miles", "SkyRL"), ("prompt_mean",)),
)
