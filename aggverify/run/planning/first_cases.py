"""What a check begins with, before anything is drawn: its lists, the corpus and the grid."""

from __future__ import annotations

from dataclasses import replace

from aggverify.checks import Check
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.generation.corpus import corpus
from aggverify.generation.space import Space
from aggverify.steps.case import Case


def catalogue(check: Check) -> frozenset[Case]:
    """Return the hard cases, as this check runs them."""
    return frozenset((*_of_the_corpus(check), *map(check.project, hard_cases())))


def _of_the_corpus(check: Check) -> list[Case]:
    """Return the corpus's cases that name this check."""
    return [hard.case for hard in corpus() if check.name in hard.checks]


def first_cases(check: Check, subject: Subject, space: Space) -> list[Case]:
    """Return what a check begins with: all of its own cases.

    Without such, the corpus's cases for this check come first. Then come its lists, or the corpus's
    for all checks and the grid, brought into its space. Each comes once.

    The corpus, and after it the grid, go by the number of ranks: small worlds are there sooner, and
    where ranks block, fewer are lost. Lists keep their order.
    """
    if check.only is not None:
        return list(check.only(subject))
    own = _of_the_corpus(check)
    if check.stored is not None:
        first = (*own, *check.stored(subject))
        return [case for case in dict.fromkeys(first) if case in space]
    stored = (*hard_cases(), *grid(subject.max_world, space.cp_kinds))
    if subject.nonlinear:
        stored = tuple(replace(case, dtype="float64") for case in stored)
    projected = dict.fromkeys((*own, *map(check.project, stored)))
    chosen = [case for case in projected if case in space][: check.max_stored]
    hard = catalogue(check)
    return sorted(chosen, key=lambda case: (case not in hard, case.layout.world_size))
