"""Objectives of whole sequences: a function of a linear reading, averaged over pairs or rollouts.

What the function is taken of is an exact rational. The function and its slope are worked out in
mpmath, to far more digits than any format has, and cut to a rational.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import mp

from .errors import OracleError
from .evaluate import unmasked_sums
from .modes.base import counts, number_of_units, unit_tokens
from .modes.pair_mean import SIZE, Parts, pairs
from .modes.parameter import member_of
from .policy import DEFAULT_POLICY, Policy
from .step import Step

BITS = 240
"""Significant bits that are kept of a value or a slope."""


@dataclass(frozen=True, slots=True)
class Objective:
    """``mean over u of term(z_u)``, where every ``z_u`` is linear in the inputs of the tokens."""

    name: str
    formula: str
    citation: str
    linear: str
    """The mode whose weights, times the slope at 0, are the gradient where all inputs are 0."""
    term: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    """Its derivative; both are monotone on each side of the point where the slope is 0."""
    group_size: int | None = None
    """Rollouts of a prompt, where it compares them."""
    negative: bool = False
    """Whether inputs are kept at 0 or below: no ratio is above 1, and so no clip above 1 acts."""
    asks: tuple[str, ...] = ("denominators",)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Framework -> what it is called there."""

    def units(self, step: Step, policy: Policy) -> list[Parts]:
        """Return the samples of each pair or rollout ``u``, with their coefficients in ``z_u``."""
        if self.group_size is not None:
            return pairs(step, policy)
        tokens = counts(step, policy)
        totals = unit_tokens(tokens, step.rollouts)
        kept = zip(step.rollouts.values(), totals, strict=True)
        return [
            [(i, Fraction(1, max(total, 1))) for i in members]
            for members, total in kept
            if total or policy.empty_units == "count"
        ]

    def number(self, step: Step, policy: Policy) -> int:
        """Return what the sum over units is divided by."""
        if self.group_size is not None:
            return max(len(pairs(step, policy)), 1)
        return number_of_units(unit_tokens(counts(step, policy), step.rollouts), policy)


def arguments(units: Sequence[Parts], sums: Sequence[Fraction]) -> list[Fraction]:
    """``z`` of every unit. ``sums``: of the unmasked inputs of each sample."""
    return [sum((times * sums[i] for i, times in parts), Fraction(0)) for parts in units]


def value_and_weights(
    objective: Objective,
    step: Step,
    inputs: Any,
    *,
    policy: Policy = DEFAULT_POLICY,
    dtype: str | None = None,
) -> tuple[Fraction, tuple[Fraction, ...]]:
    """Return the objective, and its derivative by every response token, flat in step order."""
    units, number = objective.units(step, policy), objective.number(step, policy)
    found = arguments(units, unmasked_sums(step, inputs, dtype))
    weights = [Fraction(0)] * len(step.samples)
    for parts, z in zip(units, found, strict=True):
        for i, times in parts:
            weights[i] += at(objective.slope, z) * times / number
    total = sum((at(objective.term, z) for z in found), Fraction(0))
    flat = (w * bit for s, w in zip(step.samples, weights, strict=True) for bit in s.loss_mask)
    return total / number, tuple(flat)


def at(function: Callable[[Any], Any], z: Fraction) -> Fraction:
    """Return a term or slope at an exact argument, cut to a rational of BITS bits."""
    with mp.workprec(BITS + 64):
        value = function(mp.mpf(z.numerator) / z.denominator)
        mantissa, exponent = mp.frexp(value)
        whole, power = int(mp.ldexp(mantissa, BITS)), int(exponent) - BITS
    return Fraction(whole << power) if power > 0 else Fraction(whole, 1 << -power)


def _beta(name: str, beta: Fraction) -> Fraction:
    if beta <= 0:
        raise OracleError(f"beta of {name} must be above 0, got {beta}")
    return beta


def pair_logsigmoid(beta: Fraction) -> Objective:
    """DPO; with beta 1 a reward model (Bradley-Terry)."""
    b = _beta("pair_logsigmoid", beta)
    return Objective(
        name=f"pair_logsigmoid({b})",
        formula=f"(1/P) * sum_g [ -log sigmoid(b * (S_chosen - S_rejected)) ],  b = {b}",
        citation="DPO, arXiv 2305.18290 eq. 7; with b = 1 a reward model, arXiv 2203.02155 eq. 1",
        linear="pair_mean",
        term=lambda z: mp.log1p(mp.exp(-z * b.numerator / b.denominator)),
        slope=lambda z: (
            -mp.mpf(b.numerator) / b.denominator / (1 + mp.exp(z * b.numerator / b.denominator))
        ),
        group_size=SIZE,
        asks=("denominators", "sequence"),
        names=dict.fromkeys(("TRL", "OpenRLHF", "NeMo-RL"), ("dpo",)),
    )


def pair_squared(beta: Fraction) -> Objective:
    """IPO."""
    b = _beta("pair_squared", beta)
    half = 1 / (2 * b)
    return Objective(
        name=f"pair_squared({b})",
        formula=f"(1/P) * sum_g (S_chosen - S_rejected - 1/(2b))^2,  b = {b}",
        citation="IPO, arXiv 2310.12036 eq. 17; TRL has means for sums (--policy sequence=mean)",
        linear="pair_mean",
        term=lambda z: (z - mp.mpf(half.numerator) / half.denominator) ** 2,
        slope=lambda z: 2 * (z - mp.mpf(half.numerator) / half.denominator),
        group_size=SIZE,
        asks=("denominators", "sequence"),
        names=dict.fromkeys(("TRL", "OpenRLHF"), ("ipo",)),
    )


SEQUENCE_RATIO = Objective(
    name="sequence_ratio",
    formula="-(1/N) * sum_r exp( sum_{t in r} x*m / max(M_r, 1) )",
    citation="GSPO, arXiv 2507.18071 eq. 5 and 7, every advantage 1 and no ratio above 1",
    linear="sample_mean",
    term=lambda z: -mp.exp(z),
    slope=lambda z: -mp.exp(z),
    negative=True,
    asks=("denominators", "empty_units"),
    names={"verl": ("gspo",)},
)


def _sequence_ratio(parameter: Fraction) -> Objective:
    if parameter != 1:
        raise OracleError(f"sequence_ratio takes no parameter, got {parameter}")
    return SEQUENCE_RATIO


OBJECTIVES: Mapping[str, Callable[[Fraction], Objective]] = {
    "pair_logsigmoid": pair_logsigmoid,
    "pair_squared": pair_squared,
    "sequence_ratio": _sequence_ratio,
}
NICKNAMES = {
    alias: name
    for name, member in OBJECTIVES.items()
    for names in member(Fraction(1)).names.values()
    for alias in names
}
"""What frameworks call them, with the same parameter."""


@lru_cache(maxsize=64)
def objective(name: str) -> Objective | None:
    """Return the objective of that name, its own or a framework's; None for what is none."""
    word, parameter = member_of(name)
    known = OBJECTIVES.get(NICKNAMES.get(word, word))
    return None if known is None else known(Fraction(1) if parameter is None else parameter)
