"""``sample_mean``: mean over rollouts of the rollout's token mean.

(1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ]

Source: GRPO, arXiv 2402.03300 eq. 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp

from oracles.modes.base import Mode, count, mean_of_unit_means, unit_mean
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    units = step.rollouts
    if policy.several_samples == "rollout":
        return unit_mean(step, units, policy)
    alone = {i: (i,) for i in range(len(step.samples))}
    weights = unit_mean(step, alone, policy)
    if policy.several_samples == "sample":
        return weights
    if policy.several_samples == "samples_over_rollouts":
        return [w * len(alone) / len(units) for w in weights]
    size = {i: len(members) for members in units.values() for i in members}
    return [w * len(alone) / (len(units) * size[i]) for i, w in enumerate(weights)]


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    if policy.several_samples == "rollout":
        return mean_of_unit_means(step, sums, step.rollouts, policy)
    samples = {i: (i,) for i in range(len(step.samples))}
    if policy.several_samples == "sample":
        return mean_of_unit_means(step, sums, samples, policy)
    means = [s / max(count(x, policy), 1) for s, x in zip(sums, step.samples, strict=True)]
    if policy.several_samples == "samples_over_rollouts":
        return mp.fsum(means) / step.num_rollouts
    inner = [mp.fsum(means[i] for i in m) / len(m) for m in step.rollouts.values()]
    return mp.fsum(inner) / step.num_rollouts


MODE = Mode(
    name="sample_mean",
    formula="(1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ]",
    citation="GRPO, arXiv 2402.03300 eq. 3",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
)
