"""Smaller neighbours of a failing case, made from the case itself rather than from its draws.

Hypothesis shrinks what was drawn; a sample in the middle is many draws, which it seldom removes at
once while something else stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aggverify.case import Case
from aggverify.rearranged import reordered
from aggverify.run.catalogue import fits
from aggverify.strategies import Space


def neighbours(case: Case, space: Space) -> list[Case]:
    """Valid cases of the space on one rank, with one sample less, or in double precision."""
    return [near for near in _nearby(case) if fits(near, space)]


def _nearby(case: Case) -> Iterator[Case]:
    if not case.layout.is_trivial:
        yield case.trivial
    if case.layout.cp_size > 1:
        yield case.with_layout(replace(case.layout, cp_size=1))
    for i in range(len(case.step.samples)):
        cells = case.layout.micro_batches
        if len(case.step.samples) > 1 and all(cell != (i,) for rank in cells for cell in rank):
            yield without(case, i)
    if case.dtype != "float64":
        yield replace(case, dtype="float64")


def without(case: Case, sample: int) -> Case:
    """The case less one sample, which is not alone in its micro-batch."""
    cells = tuple(
        tuple(tuple(i for i in cell if i != sample) for cell in rank)
        for rank in case.layout.micro_batches
    )
    order = [i for i in range(len(case.step.samples)) if i != sample]
    return reordered(case, order, cells)
