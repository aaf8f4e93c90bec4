"""``sample_mean``: mean over rollouts of the rollout's token mean.

(1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ]

Source: GRPO, arXiv 2402.03300 eq. 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp

from oracles.modes.base import Mode, count, counted_units, mean_of_unit_means, unit_mean
from oracles.policy import Policy
from oracles.step import Step


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    units = step.rollouts
    if policy.several_samples == "rollout":
        return unit_mean(step, units, policy)
    samples = {i: (i,) for i in range(len(step.samples))}
    weights = unit_mean(step, samples, policy)
    if policy.several_samples == "sample":
        return weights
    counted = len(counted_units(step, samples, policy))
    rollouts = counted_units(step, units, policy)
    if policy.several_samples == "samples_over_rollouts":
        return [w * counted / max(len(rollouts), 1) for w in weights]
    # Mean over rollouts of the mean over their samples of the sample's token mean.
    size = {
        i: len(counted_units(step, {j: (j,) for j in members}, policy))
        for members in units.values()
        for i in members
    }
    return [w * counted / (max(len(rollouts), 1) * max(size[i], 1)) for i, w in enumerate(weights)]


def scalar_mp(step: Step, sums: Sequence[Any], policy: Policy, divisor: Any) -> Any:
    """The formula itself, in mpmath."""
    if policy.several_samples == "rollout":
        return mean_of_unit_means(step, sums, step.rollouts, policy)
    samples = {i: (i,) for i in range(len(step.samples))}
    if policy.several_samples == "sample":
        return mean_of_unit_means(step, sums, samples, policy)
    every = policy.empty_units == "count"
    rollouts = []
    for members in step.rollouts.values():
        full = [i for i in members if every or count(step.samples[i], policy)]
        means = [sums[i] / max(count(step.samples[i], policy), 1) for i in full]
        if means:
            rollouts.append((mp.fsum(means), len(means)))
    if policy.several_samples == "samples_over_rollouts":
        return mp.fsum(total for total, _ in rollouts) / max(len(rollouts), 1)
    return mp.fsum(total / n for total, n in rollouts) / max(len(rollouts), 1)


MODE = Mode(
    name="sample_mean",
    formula="(1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ]",
    citation="GRPO, arXiv 2402.03300 eq. 3",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
)
