"""``sample_mean``: (1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ] (GRPO, arXiv 2402.03300 eq. 3)."""

from __future__ import annotations

from fractions import Fraction

from oracles.modes.base import Mode, unit_mean
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


MODE = Mode(
    name="sample_mean",
    formula="(1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ]",
    citation="GRPO, arXiv 2402.03300 eq. 3",
    sample_weights=sample_weights,
)
