"""The second road: a step as rows of numbers, for formulas written down as they are printed.

A formula sees no unit dictionaries and no weights; it groups rows by their ids, takes sums of
losses and counts ones in masks itself, so that a mistake in the exact road is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpmath import mp


@dataclass(frozen=True, slots=True)
class Row:
    """One sample: its unmasked losses as ``mpf``, and its tokens in a denominator."""

    rollout: int
    group: int
    losses: tuple[Any, ...]
    tokens: int


Rows = Sequence[Row]


def by_rollout(rows: Rows) -> list[list[Row]]:
    """Rows of each rollout."""
    return _split(rows, lambda row: row.rollout)


def by_group(rows: Rows) -> list[list[Row]]:
    """Rows of each prompt group."""
    return _split(rows, lambda row: row.group)


def _split(rows: Rows, key: Callable[[Row], int]) -> list[list[Row]]:
    return [[row for row in rows if key(row) == k] for k in sorted({key(row) for row in rows})]


def loss_sum(rows: Iterable[Row]) -> Any:
    """Sum of the unmasked losses of some rows, one rounding."""
    return mp.fsum(loss for row in rows for loss in row.losses)


def tokens(rows: Iterable[Row]) -> int:
    """Tokens of some rows in a denominator."""
    return sum(row.tokens for row in rows)


def token_mean(rows: Rows) -> Any:
    """Mean loss of a unit; 0 for a unit without tokens."""
    return loss_sum(rows) / max(tokens(rows), 1)


def counted(units: Iterable[Rows], empty_units: str) -> list[Rows]:
    """Return the units a mean over units runs over."""
    return [unit for unit in units if empty_units == "count" or tokens(unit) > 0]
