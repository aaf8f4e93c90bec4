"""The catalogue of properties: one file per family, one named check per property."""

from __future__ import annotations

from aggverify.checks import (
    counts,
    empty,
    exhaustive,
    formula,
    groups,
    linearity,
    logs,
    masks,
    order,
    padding,
    paths,
    poison,
    scalar,
    terms,
    windows,
)
from aggverify.checks.arguments import LEFT_ALONE, REFUSES, SWITCH
from aggverify.checks.base import Check, Finding
from aggverify.checks.collectives import AGREEMENT, COLLECTIVES
from aggverify.checks.layout import COMBINED, CONTEXT_PARALLEL, DATA_PARALLEL, MICRO_BATCHES
from aggverify.checks.steadiness import REPEAT, STATE
from aggverify.errors import unknown

CHECKS: tuple[Check, ...] = (
    REPEAT,
    STATE,
    windows.CHECK,
    linearity.CHECK,
    formula.CHECK,
    LEFT_ALONE,
    MICRO_BATCHES,
    DATA_PARALLEL,
    CONTEXT_PARALLEL,
    COMBINED,
    groups.CHECK,
    order.CHECK,
    padding.CHECK,
    masks.CHECK,
    empty.CHECK,
    poison.CHECK,
    scalar.CHECK,
    counts.CHECK,
    terms.CHECK,
    paths.CHECK,
    COLLECTIVES,
    AGREEMENT,
    logs.CHECK,
    SWITCH,
    REFUSES,
    counts.BEYOND_FLOAT32,
    exhaustive.CHECK,
)
"""In the order they run: what makes every other result worthless first, then a wrong formula
before a layout dependence."""


def check(name: str) -> Check:
    """The check of that name; raises InputError naming the accepted ones."""
    for found in CHECKS:
        if found.name == name:
            return found
    raise unknown("check", name, [c.name for c in CHECKS])


__all__ = ["CHECKS", "Check", "Finding", "check"]
