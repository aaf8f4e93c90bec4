"""The truth: exact step scalars and token weights of every aggregation mode."""

from __future__ import annotations

from fractions import Fraction

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


__all__ = [
    "DEFAULT_POLICY",
    "MODES",
    "Mode",
    "OracleError",
    "Policy",
    "Sample",
    "Step",
    "mode",
    "weights",
]
