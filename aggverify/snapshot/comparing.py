"""Recorded against now: which entries moved, how far, and what that means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction

from aggverify.checks.nonlinear import BOUND
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.oracles.bounds import PRECISIONS, scalar_bound, weight_bound
from aggverify.snapshot.pinned import MOST_FACTOR, EntryKey, Pinned, PinnedEntry
from aggverify.snapshot.taking import Ran, computes_in, pinned, rows
from aggverify.steps.case import Case

ULPS = 4
"""Default number of units in the last place that another order of additions may change."""


class Level(IntEnum):
    """How far an entry is from its record, the worst last."""

    IDENTICAL = 0
    ULPS = 1
    BOUND = 2
    CHANGED = 3
    MISSING = 4
    """Run now, and in no record."""
    ORPHANED = 5
    """In the record, and not run any more."""

    @property
    def is_near(self) -> bool:
        """Whether another environment explains it."""
        return self in (Level.ULPS, Level.BOUND)


@dataclass(frozen=True, slots=True)
class Moved:
    """One entry; of a changed one also the row and place that moved furthest."""

    key: EntryKey
    level: Level
    case: Case | None = None
    before: PinnedEntry | None = None
    now: PinnedEntry | None = None
    field: str = ""
    place: int = 0


@dataclass(frozen=True, slots=True)
class Allowed:
    """How far a row's numbers may move: ``ulps`` of the precision, or the bound of their place."""

    ulps: int
    precision: str
    bounds: Sequence[Fraction]
    of_projection: Fraction

    def level(self, before: float, now: float, bound: Fraction) -> Level:
        """Of one number."""
        if before.hex() == now.hex() or (before != before and now != now):
            return Level.IDENTICAL
        if not (math.isfinite(before) and math.isfinite(now)):
            return Level.CHANGED
        error = abs(Fraction(now) - Fraction(before))
        if error <= self.ulps * _ulp(max(abs(before), abs(now)), self.precision):
            return Level.ULPS
        return Level.BOUND if error <= bound else Level.CHANGED


def _ulp(number: float, precision: str) -> Fraction:
    if not number:
        return Fraction(0)
    return Fraction(2) ** (math.frexp(number)[1] - PRECISIONS[precision].p)


def compared(
    subject: Subject, recorded: Mapping[EntryKey, PinnedEntry], ran: Ran, ulps: int = ULPS
) -> list[Moved]:
    """Every entry of the record and of now, in their order."""
    own = computes_in(list(ran.values()))
    found = []
    for key in sorted(recorded.keys() | ran.keys()):
        if key not in ran:
            found.append(Moved(key, Level.ORPHANED, before=recorded[key]))
            continue
        execution = ran[key]
        now = pinned(execution)
        if key not in recorded:
            found.append(Moved(key, Level.MISSING, execution.case, now=now))
            continue
        moved = Moved(key, Level.IDENTICAL, execution.case, recorded[key], now)
        found.append(_judged(subject, moved, execution, own, ulps))
    return found


def _judged(subject: Subject, moved: Moved, execution: Execution, own: str, ulps: int) -> Moved:
    before, now = moved.before, moved.now
    assert before is not None and now is not None
    if str(before) == str(now):
        return moved
    if before.fault or now.fault or before.values.keys() != now.values.keys():
        return replace(moved, level=Level.CHANGED)
    allowed = _allowances(subject, execution, own, ulps)
    worst = moved
    for name in sorted(now.values, key=lambda name: (name != "weights", name != "value", name)):
        level, place = _level(before.values[name], now.values[name], allowed(name))
        if level > worst.level:
            worst = replace(moved, level=level, field=name, place=place)
    # No number moved, and yet what is stored differs: not the same bits.
    return worst if worst.level else replace(moved, level=Level.ULPS, field="losses")


def _level(before: Pinned, now: Pinned, allowed: Allowed) -> tuple[Level, int]:
    """Return the worst of a row, and where it is."""
    if before.count != now.count or (before.numbers is None) != (now.numbers is None):
        return Level.CHANGED, 0
    if before.numbers is not None and now.numbers is not None:
        rows = zip(before.numbers, now.numbers, allowed.bounds, strict=True)
        levels = [(allowed.level(*row), -i) for i, row in enumerate(rows)]
        level, place = max(levels, default=(Level.IDENTICAL, 0))
        return level, -place
    if before.digest == now.digest:
        return Level.IDENTICAL, 0
    seen = [
        allowed.level(before.largest, now.largest, allowed.bounds[now.place]),
        allowed.level(before.projection, now.projection, allowed.of_projection),
    ]
    return max(Level.ULPS, *seen), now.place


def _allowances(
    subject: Subject, execution: Execution, own: str, ulps: int
) -> Callable[[str], Allowed]:
    """Return, by row, how far the numbers of one entry may move.

    Twice the reducer's roundings are allowed, as the record and the run both have them.
    """
    case, now = execution.case, rows(execution)
    name = min(case.dtype, own, key=lambda each: PRECISIONS[each].p)
    precision, roundings = PRECISIONS[name], 2 * subject.roundings_on(case.step)
    weights = [Fraction(w) if math.isfinite(w) else Fraction(0) for w in now.get("weights", ())]
    additions = max(sum(map(bool, weights)) - 1, 0)
    share = scalar_bound(Fraction(1), additions, roundings + 2, precision)
    bounds = [weight_bound(w, roundings, precision) if w else Fraction(0) for w in weights]
    if subject.nonlinear:
        share, largest = BOUND, max(map(abs, weights), default=Fraction(0))
        bounds = [BOUND * largest if w else Fraction(0) for w in weights]

    def allowed(field: str) -> Allowed:
        if field == "weights":
            size = sum(map(abs, weights), Fraction(0))
            return Allowed(ulps, name, bounds, share * MOST_FACTOR * size)
        row = now[field]
        sizes = [Fraction(abs(x)) for x in row if math.isfinite(x)]
        if field == "value":
            losses = (Fraction(x) if math.isfinite(x) else Fraction(0) for x in case.losses)
            sizes += [abs(w * x) for w, x in zip(weights, losses, strict=False)]
        bound = share * sum(sizes, Fraction(0))
        return Allowed(ulps, name, [bound] * len(row), bound * MOST_FACTOR * len(row))

    return allowed
