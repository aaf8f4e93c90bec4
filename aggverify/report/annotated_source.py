"""The reducer's source, line by line, with what is known of each: where it ran, and where not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aggverify.model import Covered, Decided
from aggverify.model.established import SHARDED

NEVER, ALONE, PARTLY, RAN, OTHER = "never", "alone", "partly", "ran", ""
"""Marks, classes of the page's style. ``ALONE``: on one rank only; ``PARTLY``: it has a condition
that went one way; ``OTHER``: no line of code."""


@dataclass(frozen=True, slots=True)
class AnnotatedLine:
    """A line of a function that ran."""

    number: int
    text: str
    mark: str
    note: str


def marked(covered: Covered) -> list[tuple[str, list[AnnotatedLine]]]:
    """Every function with its lines; those whose source is not known are left out."""
    return [
        (f.function, [_line(covered, f.lines, f.first + n, t) for n, t in enumerate(f.source)])
        for f in covered.functions
        if f.source
    ]


def _line(covered: Covered, lines: tuple[int, ...], number: int, text: str) -> AnnotatedLine:
    here = [c for c in covered.conditions if c.line == number]
    if number not in lines:
        return AnnotatedLine(number, text, OTHER, "")
    if number not in covered.ran:
        return AnnotatedLine(number, text, NEVER, "never ran")
    if covered.sharded and number not in covered.sharded:
        return AnnotatedLine(
            number, text, ALONE, f"not on several ranks; {_kinds(covered, number)}"
        )
    if notes := [note for condition in here for note in _one_way(condition)]:
        return AnnotatedLine(number, text, PARTLY, "; ".join(notes))
    return AnnotatedLine(number, text, RAN, _kinds(covered, number))


def _kinds(covered: Covered, number: int) -> str:
    return ", ".join(kind for kind, lines in covered.lines.items() if number in lines)


def _one_way(condition: Decided) -> Iterator[str]:
    for word, kinds in (("true", condition.true), ("false", condition.false)):
        if not kinds:
            yield f"{condition.text}: never {word}"


def share(covered: Covered) -> tuple[int, int]:
    """How many lines and outcomes of conditions ran on several ranks, and of how many."""
    lines = {line for function in covered.functions for line in function.lines}
    ways = [way for c in covered.conditions for way in (c.true, c.false)]
    sharded = sum(SHARDED in way for way in ways)
    return len(lines & covered.sharded) + sharded, len(lines) + len(ways)
