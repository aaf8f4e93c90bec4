"""``pair_mean``: mean over pairs of the chosen rollout's sum less the rejected one's.

A pair is a prompt group of two: the rollout with the smaller id is the chosen one. Of a larger
group every other rollout makes a pair with that one; a rollout alone makes none.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from ..policy import Policy
from ..step import Step
from .base import Mode, counts
from .formula import Rows, by_group, by_rollout, loss_sum, tokens

Parts = list[tuple[int, Fraction]]
"""Samples, each with what its sum is multiplied by."""
SIZE = 2
"""Rollouts of a prompt."""


def pairs(step: Step, policy: Policy) -> list[Parts]:
    """Of each pair its samples, those of the chosen rollout first."""
    found = []
    for members in step.groups.values():
        chosen, *others = sorted({step.samples[i].rollout for i in members})
        found += [_part(step, policy, chosen, 1) + _part(step, policy, o, -1) for o in others]
    return found


def _part(step: Step, policy: Policy, rollout: int, sign: int) -> Parts:
    members = step.rollouts[rollout]
    whole = sum([counts(step, policy)[i] for i in members]) if policy.sequence == "mean" else 1
    return [(i, Fraction(sign, max(whole, 1))) for i in members]


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    weights, found = [Fraction(0)] * len(step.samples), pairs(step, policy)
    for pair in found:
        for i, times in pair:
            weights[i] += times / len(found)
    return weights


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    apart = []
    for group in by_group(rows):
        by = [max(tokens(r), 1) if policy.sequence == "mean" else 1 for r in by_rollout(group)]
        chosen, *others = [loss_sum(r) / n for r, n in zip(by_rollout(group), by, strict=True)]
        apart += [chosen - other for other in others]
    return mp.fsum(apart) / max(len(apart), 1)


MODE = Mode(
    name="pair_mean",
    formula="(1/P) * sum_g [ sum_{t in chosen} l*m - sum_{t in rejected} l*m ]",
    citation="the linear part of DPO, arXiv 2305.18290 eq. 7",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    asks=("denominators", "sequence"),
    group_size=SIZE,
)
