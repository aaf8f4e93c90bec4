"""In what portions cases are run, and what starts before its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from aggverify.steps.case import Case

FIRST_BATCH, LAST_BATCH = 4, 64
"""Stored cases sent to the ranks in one go, doubling: an early fault costs little, a late one is
rare, and progress is seen in between."""
T = TypeVar("T")


def nothing() -> None:
    """Start nothing."""


def doubling(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield the cases in batches that double."""
    rest, size = iter(cases), FIRST_BATCH
    while batch := list(islice(rest, size)):
        yield batch
        size = min(2 * size, LAST_BATCH)


def ahead(
    portions: Iterable[T], begin: Callable[[T], None], after: Callable[[], None] = nothing
) -> Iterator[tuple[T, Callable[[], None]]]:
    """Yield each portion with what starts the next one; with the last one comes ``after``."""
    last: list[T] = []
    for portion in portions:
        if last:
            yield last.pop(), partial(begin, portion)
        last.append(portion)
    if last:
        yield last.pop(), after
