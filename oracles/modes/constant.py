"""``constant``: a fixed divisor instead of a count.

sum l*m / (L * N)

Source: Dr.GRPO, arXiv 2503.20783 listing 1.
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
    number = step.num_rollouts
    if policy.constant_count == "one":
        number = 1
    elif policy.constant_count == "valid_rollouts":
        valid = {s.rollout for s in step.samples if count(s, policy)}
        number = max(len(valid), 1)
    return [1 / (divisor * number)] * len(step.samples)


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    number = step.num_rollouts
    if policy.constant_count == "one":
        number = 1
    elif policy.constant_count == "valid_rollouts":
        valid = [any(count(step.samples[i], policy) for i in m) for m in step.rollouts.values()]
        number = max(sum(valid), 1)
    return mp.fsum(sums) / (divisor * number)


MODE = Mode(
    name="constant",
    formula="sum l*m / (L * N)",
    citation="Dr.GRPO, arXiv 2503.20783 listing 1",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    needs_divisor=True,
)
