"""Spectrum-based fault localisation: lines and outcomes of conditions that failing cases took.

Ochiai's measure: failing cases that took it, over the root of all failing ones times all that took
it. 1 where all failing cases took it and no passing one did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from aggverify.model import Lines, Suspect
from aggverify.trainer.conditions import Condition

MOST = 3
"""Places that are reported."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What one case ran."""

    fails: bool
    lines: frozenset[int]
    outcomes: frozenset[int]


def suspects(
    ran: Sequence[Spectrum], functions: Sequence[Lines], conditions: Sequence[Condition]
) -> tuple[Suspect, ...]:
    """Return the places that best separate failing cases from passing ones.

    The first of those that the same cases took; nothing where there are none of either, or nothing
    separates them.
    """
    failing = sum(one.fails for one in ran)
    if not 0 < failing < len(ran):
        return ()
    taken: dict[tuple[bool, ...], tuple[float, Suspect]] = {}
    for place, took in _places(ran, functions, conditions):
        fails = sum(one.fails for one, has in zip(ran, took, strict=True) if has)
        passes = sum(took) - fails
        if fails and took not in taken:
            score = fails / sqrt(failing * (fails + passes))
            taken[took] = score, _suspect(place, fails, failing, passes, len(ran) - failing)
    by_chance = sqrt(failing / len(ran)) * (1 + 1e-9)  # what every case took
    found = sorted(taken.values(), key=lambda scored: -scored[0])
    return tuple([suspect for score, suspect in found if score > by_chance][:MOST])


Place = tuple[str, int, str | None, bool]
"""A function, a line, the text of its condition if one leads there alone, and which way it went."""


def _suspect(
    place: Place, failing: int, all_failing: int, passing: int, all_passing: int
) -> Suspect:
    """Return a suspect with its sentence.

    Such as "line 42 of reduce, `n > 64` true: 37 of 37 failing cases, 0 of 412 passing ones".
    """
    function, line, condition, truth = place
    way = "" if condition is None else f", `{condition}` {str(truth).lower()}"
    sentence = (
        f"line {line} of {function}{way}: {failing} of {all_failing} failing cases, "
        f"{passing} of {all_passing} passing ones"
    )
    return Suspect(*place, failing, all_failing, passing, all_passing, sentence)


def _places(
    ran: Sequence[Spectrum], functions: Sequence[Lines], conditions: Sequence[Condition]
) -> Iterator[tuple[Place, tuple[bool, ...]]]:
    """Conditions first: of a branch its condition is more informative than its first line."""
    for n, condition in enumerate(conditions):
        for truth in (True, False):
            took = tuple(2 * n + truth in one.outcomes for one in ran)
            yield (condition.function, condition.line, condition.text, truth), took
    for each in functions:
        for line in each.lines:
            yield (each.function, line, None, True), tuple(line in one.lines for one in ran)
