"""Bugs that really happened, with the clues each leaves: one entry of a TOML file a bug."""

from __future__ import annotations

from collections.abc import Iterator, Set

from aggverify.diagnosis.bugs.base import KnownBug, stored
from aggverify.diagnosis.clues import PARTS, Clues
from aggverify.diagnosis.factors import Factor, product_of_sizes
from aggverify.diagnosis.forms import SIZES

_ALL = frozenset(PARTS)
BUGS: tuple[KnownBug, ...] = tuple(stored())
"""The first that fits is meant, so the more specific ones stand first."""


def known_bug(seen: Clues, own: Set[str] = _ALL) -> KnownBug | None:
    """Return the first bug whose clues all fit.

    One that accounts for the whole form comes before one that leaves parts of it open; ``own``:
    parts that are right, and need no account.
    """
    fitting = [bug for bug in BUGS if bug.explains(seen)]
    whole = (bug for bug in fitting if not bug.leaves_out(own))
    return next(whole, fitting[0] if fitting else None)


def bugs_of_parts(seen: Clues) -> tuple[KnownBug, ...]:
    """One bug for every part of the factor, if each part is known."""
    parts = [] if seen.factor is None else list(_parts(seen.factor))
    found = [known_bug(Clues(seen.mode, seen.engine, factor=part)) for part in parts]
    return tuple(b for b in found if b is not None) if all(found) else ()


def _parts(factor: Factor) -> Iterator[Factor]:
    """Yield the sizes of the layout one by one, then everything else in one."""
    if factor.constant != 1 or len(factor.sizes) < 2:
        return
    yield from (product_of_sizes([size]) for size in factor.sizes if size[0] in SIZES)
    if others := [size for size in factor.sizes if size[0] not in SIZES]:
        yield product_of_sizes(others)


__all__ = ["BUGS", "KnownBug", "bugs_of_parts", "known_bug"]
