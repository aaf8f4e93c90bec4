"""``token_mean_legacy(B)``: the mean over micro-batches of B samples of each one's own token mean.

What gradient accumulation makes of local token means: SkyRL's reduction before March 2026, kept
under this name, and TRL's ``bnpo``. It is no function of the step alone: which samples stand in a
micro-batch decides. With B samples in each, filled in order, it is one, and another for every B.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeVar

from mpmath import mp

from ..errors import OracleError
from ..policy import Policy
from ..step import Step
from .base import Mode, counts, number_of_units, unit_mean
from .formula import Rows, counted, token_mean

T = TypeVar("T")
MOST = 1024
"""Samples of the largest micro-batch that can be asked for."""


def member(size: Fraction) -> Mode:
    """Return the mode over micro-batches of this many samples.

    Raises OracleError for what is no size.
    """
    if size.denominator != 1 or not 1 <= size <= MOST:
        raise OracleError(
            f"token_mean_legacy takes the samples of a micro-batch, a whole number from 1 to "
            f"{MOST}, got {size}"
        )
    rows = int(size)

    def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
        """Exact weight of an unmasked token, per sample."""
        tokens = counts(step, policy)
        cells = dict(enumerate(_cut(range(len(tokens)), rows)))
        totals = [sum([tokens[i] for i in cell]) for cell in cells.values()]
        return unit_mean(step, tokens, cells, number_of_units(totals, policy))

    def scalar_mp(given: Rows, policy: Policy, divisor: Any) -> Any:
        """Return the formula itself, in mpmath."""
        cells = counted(_cut(given, rows), policy.empty_units)
        return mp.fsum(map(token_mean, cells)) / max(len(cells), 1)

    return Mode(
        name=f"token_mean_legacy({rows})",
        formula="(1/n) * sum_b [ sum_{t in b} l*m / max(M_b, 1) ],  b the n micro-batches of "
        f"{rows} samples each",
        citation="SkyRL's token_mean_legacy; TRL's bnpo",
        sample_weights=sample_weights,
        scalar_mp=scalar_mp,
        asks=("empty_units", "denominators"),
        rows=rows,
    )


def _cut(given: Sequence[T], size: int) -> list[tuple[T, ...]]:
    return [tuple(given[n : n + size]) for n in range(0, len(given), size)]
