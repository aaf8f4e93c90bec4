"""The catalogue of properties: one file per family, one named check per property."""

from __future__ import annotations

from aggverify.checks import counts, empty, formula, order, poison, scalar
from aggverify.checks.base import Check, Finding
from aggverify.checks.layout import COMBINED, CONTEXT_PARALLEL, DATA_PARALLEL, MICRO_BATCHES
from aggverify.errors import unknown

CHECKS: tuple[Check, ...] = (
    formula.CHECK,
    MICRO_BATCHES,
    DATA_PARALLEL,
    CONTEXT_PARALLEL,
    COMBINED,
    order.CHECK,
    empty.CHECK,
    poison.CHECK,
    scalar.CHECK,
    counts.CHECK,
)
"""In the order they run: a wrong formula is told before a layout dependence."""


def check(name: str) -> Check:
    """The check of that name; raises InputError naming the accepted ones."""
    for found in CHECKS:
        if found.name == name:
            return found
    raise unknown("check", name, [c.name for c in CHECKS])


__all__ = ["CHECKS", "Check", "Finding", "check"]
