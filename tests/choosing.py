"""Which rows of a long parametrisation are run by default; the others are thorough."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
LATER = partial(pytest.param, marks=pytest.mark.exhaustive)
"""A row that only the exhaustive suite takes."""


def thorough_but(
    rows: Iterable[T],
    quick: Callable[[T], bool],
    *,
    ids: Callable[[T], str],
    marks: Callable[[T], Iterable[pytest.MarkDecorator]] = lambda row: (),
    each: int = 1,
    always: Callable[[T], bool] = lambda row: False,
) -> list[Any]:
    """The rows as parameters with their own ``marks``; unless ``quick``, every ``each``-th is
    thorough and so are those that are ``always``, the others are exhaustive."""

    def tier(n: int, row: T) -> tuple[pytest.MarkDecorator, ...]:
        if quick(row):
            return ()
        return (pytest.mark.exhaustive if n % each and not always(row) else pytest.mark.thorough,)

    return [
        pytest.param(row, id=ids(row), marks=(*marks(row), *tier(n, row)))
        for n, row in enumerate(rows)
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


def thorough_at_times(
    rows: Iterable[T],
    each: int,
    *,
    ids: Callable[[T], str],
    marks: Callable[[T], Iterable[pytest.MarkDecorator]] = lambda row: (),
) -> list[Any]:
    """The rows as parameters, none of them quick."""
    return thorough_but(rows, lambda _: False, ids=ids, marks=marks, each=each)
