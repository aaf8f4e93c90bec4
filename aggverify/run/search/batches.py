"""In what portions cases are run, and what starts before its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from aggverify.steps.case import Case

if TYPE_CHECKING:
    from aggverify.run.search.runner import CheckRun

FIRST_BATCH, LAST_BATCH = 4, 64
"""Stored cases sent to the ranks in one go, doubling: an early fault costs little, a late one is
rare, and progress is seen in between."""


def nothing() -> None:
    """Start nothing."""


def doubling(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield the cases in batches that double."""
    rest, size = iter(cases), FIRST_BATCH
    while batch := list(islice(rest, size)):
        yield batch
        size = min(2 * size, LAST_BATCH)


class NextCases(NamedTuple):
    """A check, and the cases that it looks at next."""

    run: CheckRun
    cases: Sequence[Case]


def ahead(
    looks: Iterable[NextCases], after: Callable[[], None] = nothing
) -> Iterator[tuple[NextCases, Callable[[], None]]]:
    """Yield each look with what starts the next one; with the last one comes ``after``."""
    last: list[NextCases] = []
    for look in looks:
        if last:
            yield last.pop(), partial(look.run.begin, look.cases)
        last.append(look)
    if last:
        yield last.pop(), after
