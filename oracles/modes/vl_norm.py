"""``vl_norm(alpha)``: rollouts weighed by a negative power of their length.

Called Delta-L Normalization in the first version of the paper and VL Norm in the second. alpha = 1
has the least variance, 0 is ``constant``; the paper also trains with 0.75. The authors' code
(zerolllin/Delta-L-Normalization) multiplies advantages by L_i^-alpha over its mean and then takes
the sum over N times a fixed length: the same weights. It divides by zero for a fully masked
rollout; here such a rollout counts as one token, or is left out by the policy ``empty_units``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import mp

from ..policy import Policy
from ..step import Step
from .base import Mode, counts, unit_tokens
from .formula import Rows, by_rollout, counted, loss_sum, tokens
from .powers import checked_exponent, power, power_mp

LEAST, POWERS = 64, 4
"""Roundings allowed in every step; and those of two powers, a rollout's own and that of a summand,
each within 1 ulp."""


def _more_roundings(rollouts: int) -> int:
    """Return those of the norm: a quotient passes through one addition less than there are."""
    return max(LEAST, rollouts - 1 + POWERS)


def member(alpha: Fraction) -> Mode:
    """Return the mode with this alpha; raises OracleError where its powers cannot be formed."""
    exponent = checked_exponent("alpha of vl_norm", alpha)

    def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
        """Exact weight of an unmasked token, per sample."""
        totals = unit_tokens(counts(step, policy), step.rollouts)
        kept = [m for m in totals if m or policy.empty_units == "count"]
        norm = divisor * sum((power(max(m, 1), -exponent) for m in kept), Fraction(0))
        weights = [Fraction(0)] * len(step.samples)
        for members, total in zip(step.rollouts.values(), totals, strict=True):
            if total:
                weight = power(total, -exponent) / norm
                for i in members:
                    weights[i] = weight
        return weights

    def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
        """Return the formula itself, in mpmath."""
        rollouts = counted(by_rollout(rows), policy.empty_units)
        shares = [power_mp(max(tokens(r), 1), -exponent) for r in rollouts]
        pairs = zip(shares, rollouts, strict=True)
        total = mp.fsum(share * loss_sum(rollout) for share, rollout in pairs)
        return total / (divisor * mp.fsum(shares)) if shares else total

    return Mode(
        name=f"vl_norm({exponent})",
        formula="(1/L) * sum_r [ M_r^-a * sum_{t in r} l*m ] / sum_r M_r^-a,  a = " + str(exponent),
        citation="VL Norm (first called Delta-L Normalization), arXiv 2509.07558",
        sample_weights=sample_weights,
        scalar_mp=scalar_mp,
        asks=("empty_units", "denominators"),
        needs_divisor=True,
        more_roundings=_more_roundings,
        degree=2 * -(-exponent.numerator // exponent.denominator) + 1,
    )
