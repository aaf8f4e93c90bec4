"""The catalogue of properties: one file per family, one named check per property."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aggverify import codes, plugins
from aggverify.checks import (
    asynchronous,
    backward,
    calls,
    claimed,
    clipping,
    compiled,
    counts,
    empty,
    exhaustive,
    formula,
    groups,
    larger_steps,
    launched,
    linearity,
    logs,
    masked_logs,
    masks,
    order,
    padding,
    paths,
    poison,
    production,
    ratios,
    real_engine,
    scalar,
    shapes,
    terms,
    torch_modes,
    virtual,
    windows,
)
from aggverify.checks.arguments import LEFT_ALONE, REFUSES, SWITCH
from aggverify.checks.base import Check, Finding
from aggverify.checks.collectives import AGREEMENT, SAME_COLLECTIVES
from aggverify.checks.determinism import REPEAT, STATE
from aggverify.checks.layout import COMBINED, CONTEXT_PARALLEL, DATA_PARALLEL, MICRO_BATCHES
from aggverify.errors import InputError, unknown

_ALL: list[Check] = [
    asynchronous.CHECK,
    REPEAT,
    STATE,
    windows.CHECK,
    linearity.CHECK,
    formula.CHECK,
    backward.CHECK,
    torch_modes.CHECK,
    LEFT_ALONE,
    MICRO_BATCHES,
    DATA_PARALLEL,
    CONTEXT_PARALLEL,
    COMBINED,
    groups.CHECK,
    clipping.CHECK,
    order.CHECK,
    padding.CHECK,
    masks.CHECK,
    empty.CHECK,
    poison.CHECK,
    poison.WITH_NANS,
    poison.INFINITE,
    scalar.CHECK,
    counts.CHECK,
    terms.CHECK,
    ratios.CHECK,
    paths.CHECK,
    compiled.CHECK,
    SAME_COLLECTIVES,
    AGREEMENT,
    logs.CHECK,
    masked_logs.LOGS,
    masked_logs.OF_TERMS,
    claimed.CHECK,
    SWITCH,
    REFUSES,
    calls.CHECK,
    counts.BEYOND_FLOAT32,
    larger_steps.CHECK,
    shapes.CHECK,
    virtual.CHECK,
    launched.CHECK,
    production.CHECK,
    real_engine.CHECK,
    exhaustive.CHECK,
]
CHECKS: Sequence[Check] = _ALL
"""In the order they run: what makes every other result worthless first, then a wrong formula
before a layout dependence. A view that shows what is registered later."""


def check(name: str) -> Check:
    """Return the check of that name; raises InputError naming the accepted ones."""
    for found in (*CHECKS, *installed()):
        if found.name == name:
            return found
    raise unknown("check", name, [c.name for c in CHECKS])


def register(*checks: Check) -> None:
    """Add a person's own checks, with the codes they bring; they run before those that are last.

    Raises InputError for a name that is in use, or a code that is not theirs to name.
    """
    for new in checks:
        if new in CHECKS:
            continue
        if any(known.name == new.name for known in CHECKS):
            raise InputError(f"check {new.name!r} is in use already")
        codes.register(*new.codes)
        place = next((n for n, known in enumerate(_ALL) if known.last > new.last), len(_ALL))
        _ALL.insert(place, new)


def installed() -> Sequence[Check]:
    """All checks, with those that packages bring; what is no good is named in a warning."""
    for found in plugins.brought("checks", Check).values():
        try:
            register(found)
        except InputError as error:
            plugins.left_out(repr(found.name), "checks", str(error))
    return CHECKS


@contextmanager
def registered(*checks: Check) -> Iterator[None]:
    """Those checks and their codes for the length of a ``with``."""
    before = tuple(CHECKS)
    with codes.registered(*(code for new in checks for code in new.codes)):
        try:
            register(*checks)
            yield
        finally:
            _ALL[:] = before


__all__ = ["CHECKS", "Check", "Finding", "check", "installed", "register", "registered"]
