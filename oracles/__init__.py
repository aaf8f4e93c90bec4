"""The truth: exact step scalars and token weights of every aggregation mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp

from oracles.errors import OracleError
from oracles.modes import MODES, Mode, mode
from oracles.modes.base import exact_divisor
from oracles.policy import DEFAULT_POLICY, Policy
from oracles.step import Sample, Step


def weights(
    name: str,
    step: Step,
    *,
    divisor: float | Fraction | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[Fraction, ...]:
    """Exact weight of every response token, flat in step order, 0 where masked."""
    found = mode(name)
    per_sample = found.sample_weights(step, policy, exact_divisor(found, divisor))
    out: list[Fraction] = []
    zero = Fraction(0)
    for sample, weight in zip(step.samples, per_sample, strict=True):
        pair = (zero, weight)
        out.extend([pair[m] for m in sample.loss_mask])
    return tuple(out)


def scalar(
    name: str,
    step: Step,
    losses: Sequence[float | Fraction],
    *,
    divisor: float | Fraction | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Fraction:
    """Exact step scalar of one loss per response token, flat; masked ones are skipped, never read.

    Raises OracleError when an unmasked loss is not finite.
    """
    found = mode(name)
    weights_ = found.sample_weights(step, policy, exact_divisor(found, divisor))
    sums = unmasked_sums(step, losses)
    return sum((w * s for w, s in zip(weights_, sums, strict=True)), Fraction(0))


def scalar_mp(
    name: str,
    step: Step,
    losses: Sequence[float | Fraction],
    *,
    digits: int = 50,
    divisor: float | Fraction | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Any:
    """The step scalar by mpmath, to ``digits`` significant digits: a second road to ``scalar``."""
    found = mode(name)
    exact = exact_divisor(found, divisor)
    with mp.workdps(digits + GUARD_DIGITS):
        sums = [_mpf(s) for s in unmasked_sums(step, losses)]
        value = found.scalar_mp(step, sums, policy, _mpf(exact))
    with mp.workdps(digits):
        return +value


GUARD_DIGITS = 30
"""Extra digits inside; cancellation between samples eats some of them."""


def _mpf(value: Fraction) -> Any:
    return mp.mpf(value.numerator) / value.denominator


def unmasked_sums(step: Step, losses: Sequence[float | Fraction]) -> list[Fraction]:
    """Exact sum of the unmasked losses of each sample."""
    if len(losses) != step.num_response_tokens:
        raise OracleError(
            f"one loss per response token: the step has {step.num_response_tokens}, "
            f"got {len(losses)}"
        )
    sums = []
    for sample, start in zip(step.samples, step.offsets, strict=True):
        kept = [losses[start + t] for t, bit in enumerate(sample.loss_mask) if bit]
        bad = [x for x in kept if not math.isfinite(x)]
        if bad:
            raise OracleError(f"unmasked losses must be finite, got {bad[0]!r}")
        sums.append(sum((Fraction(x) for x in kept), Fraction(0)))
    return sums


__all__ = [
    "DEFAULT_POLICY",
    "MODES",
    "Mode",
    "OracleError",
    "Policy",
    "Sample",
    "Step",
    "mode",
    "scalar",
    "scalar_mp",
    "weights",
]
