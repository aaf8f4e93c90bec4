"""The catalogue of properties: one file per family, one named check per property."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aggverify import codes, plugins
from aggverify.checks.base import Check, Finding
from aggverify.errors import InputError, unknown

_ORDER = (
    "aggverify.checks.asynchronous:CHECK",
    "aggverify.checks.determinism:REPEAT",
    "aggverify.checks.determinism:STATE",
    "aggverify.checks.windows:CHECK",
    "aggverify.checks.linearity:CHECK",
    "aggverify.checks.formula:CHECK",
    "aggverify.checks.backward:CHECK",
    "aggverify.checks.torch_modes:CHECK",
    "aggverify.checks.arguments:LEFT_ALONE",
    "aggverify.checks.layout:MICRO_BATCHES",
    "aggverify.checks.layout:DATA_PARALLEL",
    "aggverify.checks.layout:CONTEXT_PARALLEL",
    "aggverify.checks.layout:COMBINED",
    "aggverify.checks.groups:CHECK",
    "aggverify.checks.clipping:CHECK",
    "aggverify.checks.order:CHECK",
    "aggverify.checks.padding:CHECK",
    "aggverify.checks.masks:CHECK",
    "aggverify.checks.empty:CHECK",
    "aggverify.checks.poison:CHECK",
    "aggverify.checks.poison:WITH_NANS",
    "aggverify.checks.poison:INFINITE",
    "aggverify.checks.scalar:CHECK",
    "aggverify.checks.counts:CHECK",
    "aggverify.checks.terms:CHECK",
    "aggverify.checks.ratios:CHECK",
    "aggverify.checks.paths:CHECK",
    "aggverify.checks.compiled:CHECK",
    "aggverify.checks.collectives:SAME_COLLECTIVES",
    "aggverify.checks.collectives:AGREEMENT",
    "aggverify.checks.logs:CHECK",
    "aggverify.checks.masked_logs:LOGS",
    "aggverify.checks.masked_logs:OF_TERMS",
    "aggverify.checks.claimed:CHECK",
    "aggverify.checks.arguments:SWITCH",
    "aggverify.checks.arguments:REFUSES",
    "aggverify.checks.calls:CHECK",
    "aggverify.checks.counts:BEYOND_FLOAT32",
    "aggverify.checks.larger_steps:CHECK",
    "aggverify.checks.shapes:CHECK",
    "aggverify.checks.virtual:CHECK",
    "aggverify.checks.launched:CHECK",
    "aggverify.checks.production:CHECK",
    "aggverify.checks.real_engine:CHECK",
    "aggverify.checks.exhaustive:CHECK",
)
_ALL: list[Check] = plugins.objects_of(lambda: Check, _ORDER)
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
