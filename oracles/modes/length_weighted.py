"""``length_weighted(power)``: every rollout's token mean, times a power of its length.

LUSPO multiplies each sequence's loss by its length to undo the length bias of GSPO: power 1. Where
the loss is linear in the tokens that is ``sequence_sum``, and power 0 is ``sample_mean``; LUSPO's
own objective is not linear (its ratio belongs to the sequence), so only its weighting is here.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from ..policy import Policy
from ..step import Step
from .base import Mode, counts, number_of_units, unit_tokens
from .formula import Rows, by_rollout, counted, token_mean, tokens
from .powers import checked_exponent, power, power_mp


def member(exponent: Fraction) -> Mode:
    """Return the mode with this power; raises OracleError where it cannot be formed."""
    exponent = checked_exponent("power of length_weighted", exponent)

    def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
        """Exact weight of an unmasked token, per sample."""
        totals = unit_tokens(counts(step, policy), step.rollouts)
        number = number_of_units(totals, policy)
        weights = [Fraction(0)] * len(step.samples)
        for members, total in zip(step.rollouts.values(), totals, strict=True):
            if total:
                weight = power(total, exponent) / (number * total)
                for i in members:
                    weights[i] = weight
        return weights

    def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
        """Return the formula itself, in mpmath."""
        rollouts = counted(by_rollout(rows), policy.empty_units)
        terms = (power_mp(max(tokens(r), 1), exponent) * token_mean(r) for r in rollouts)
        return mp.fsum(terms) / max(len(rollouts), 1)

    return Mode(
        name=f"length_weighted({exponent})",
        formula="(1/N) * sum_r [ M_r^p * sum_{t in r} l*m / max(M_r, 1) ],  p = " + str(exponent),
        citation="LUSPO, arXiv 2602.05261 (power 1)",
        sample_weights=sample_weights,
        scalar_mp=scalar_mp,
        asks=("empty_units", "denominators"),
        names={"TRL": ("luspo",)} if exponent == 1 else {},
    )
