"""Reducers with bugs that really happened, and right ones that look odd, by family."""

from __future__ import annotations

from tests.corpus import (
    behaviour,
    clipping,
    context_parallel,
    correct,
    counts,
    faults,
    groups,
    labels,
    logs,
    masked_logs,
    masks,
    micro_batches,
    nonlinear,
    order,
    pairs,
    ranks,
    ratios,
    reducing,
    shapes,
    term_readings,
    well_behaved,
    zigzag,
)
from tests.corpus.base import Correct, Mutant

FAMILIES = (
    micro_batches,
    ranks,
    context_parallel,
    zigzag,
    counts,
    masked_logs,
    masks,
    groups,
    nonlinear,
    pairs,
    order,
    faults,
    behaviour,
    clipping,
    labels,
    ratios,
    reducing,
    term_readings,
    logs,
    shapes,
)

MUTANTS: tuple[Mutant, ...] = tuple(m for family in FAMILIES for m in family.MUTANTS)
RIGHT = (
    correct,
    well_behaved,
    masked_logs,
    masks,
    nonlinear,
    faults,
    clipping,
    labels,
    ratios,
    reducing,
    pairs,
)
CORRECT: tuple[Correct, ...] = tuple(c for right in RIGHT for c in right.CORRECT)

__all__ = ["CORRECT", "FAMILIES", "MUTANTS", "RIGHT", "Correct", "Mutant"]
