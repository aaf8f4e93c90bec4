"""Which rows of a long parametrisation are run by default; the others are thorough."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def thorough_but(
    rows: Iterable[T],
    quick: Callable[[T], bool],
    *,
    ids: Callable[[T], str],
    marks: Callable[[T], Iterable[pytest.MarkDecorator]] = lambda row: (),
) -> list[Any]:
    """The rows as parameters, thorough unless ``quick``, each with its own ``marks``."""
    return [
        pytest.param(
            row, id=ids(row), marks=(*marks(row), *(() if quick(row) else (pytest.mark.thorough,)))
        )
        for row in rows
    ]


def first_of_each(rows: Iterable[T], *keys: Callable[[T], Hashable]) -> list[T]:
    """Rows that are the first with their value of any key."""
    seen: set[tuple[int, Hashable]] = set()
    chosen = []
    for row in rows:
        new = {(n, key(row)) for n, key in enumerate(keys)} - seen
        if new:
            chosen.append(row)
            seen |= new
    return chosen


def thorough_at_times(rows: Iterable[T], each: int, *, ids: Callable[[T], str]) -> list[Any]:
    """The rows as parameters, every ``each``-th of them thorough, the others exhaustive."""
    return [
        pytest.param(
            row, id=ids(row), marks=pytest.mark.exhaustive if n % each else pytest.mark.thorough
        )
        for n, row in enumerate(rows)
    ]
