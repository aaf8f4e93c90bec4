"""``sample_mean``: mean over rollouts of the rollout's token mean."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from ..policy import Policy
from ..step import Step
from .base import Mode, counts, number_of_units, unit_mean, unit_tokens
from .formula import Rows, by_rollout, counted, token_mean


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    tokens = counts(step, policy)
    if policy.several_samples == "rollout":
        number = number_of_units(unit_tokens(tokens, step.rollouts), policy)
        return unit_mean(step, tokens, step.rollouts, number)
    single = {i: (i,) for i in range(len(step.samples))}
    if policy.several_samples == "sample":
        return unit_mean(step, tokens, single, number_of_units(tokens, policy))
    rollouts = number_of_units(unit_tokens(tokens, step.rollouts), policy)
    if policy.several_samples == "samples_over_rollouts":
        return unit_mean(step, tokens, single, rollouts)
    weights = [Fraction(0)] * len(step.samples)
    for members in step.rollouts.values():
        number = number_of_units([tokens[i] for i in members], policy)
        for i in members:
            if tokens[i]:
                weights[i] = Fraction(1, rollouts * number * tokens[i])
    return weights


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    rollouts = counted(by_rollout(rows), policy.empty_units)
    samples = counted([[row] for row in rows], policy.empty_units)
    match policy.several_samples:
        case "rollout":
            return mp.fsum(map(token_mean, rollouts)) / max(len(rollouts), 1)
        case "sample":
            return mp.fsum(map(token_mean, samples)) / max(len(samples), 1)
        case "samples_over_rollouts":
            return mp.fsum(map(token_mean, samples)) / max(len(rollouts), 1)
        case _:  # "mean_within_rollout"
            means = []
            for rollout in rollouts:
                inside = counted([[row] for row in rollout], policy.empty_units)
                means.append(mp.fsum(map(token_mean, inside)) / len(inside))
            return mp.fsum(means) / max(len(rollouts), 1)


MODE = Mode(
    name="sample_mean",
    formula="(1/N) * sum_r [ sum_{t in r} l*m / max(M_r, 1) ]",
    citation="GRPO, arXiv 2402.03300 eq. 3",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    asks=("empty_units", "denominators", "several_samples"),
    names={
        "slime": ("sample_mean",),
        "miles": ("sample_mean",),
        "SkyRL": ("sequence_mean",),
        "verl": ("seq-mean-token-mean",),
        "TRL": ("grpo",),
        "OpenRLHF": ("token_level_loss=False",),
        "NeMo-RL": ("token_level_loss: false",),
        "ROLL": ("seq-mean-token-mean",),
    },
    remarks={"slime": "its default", "miles": "its default"},
)
