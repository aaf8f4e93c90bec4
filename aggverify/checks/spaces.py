"""The spaces that checks start from, and narrow: all layouts a subject can be given, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from aggverify.checks.base import as_it_is
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.generation.constants import shaped
from aggverify.generation.shapes import few_and_many
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind

_DTYPES = ("float64", "float32")
_PART, SHORT = 4, 200
"""Where a case costs several runs, only one in ``_PART`` of the listed steps of a shape is run, and
none with more than ``SHORT`` tokens."""


def cp_kinds(subject: Subject) -> tuple[CpKind, ...]:
    """Return the context-parallel layouts this subject can be given; empty when it sees none."""
    if "context-parallel" not in subject.features:
        return ()
    optional: tuple[CpKind, ...] = ("bshd", "contiguous", "gathered")
    sliced: tuple[CpKind, ...] = () if "zigzag" in subject.engine.not_claimed else ("zigzag",)
    return (*sliced, *(kind for kind in optional if kind in subject.features))


def spread(
    subject: Subject, *, dp: int = 8, cp: int = 4, micro_batches: int = 3, **narrowed: Any
) -> Space:
    """Every layout the subject can be given up to these sizes, nothing fully masked.

    ``narrowed``: fields of ``Space``. Without ``min_units`` the trivial layout is left out.
    """
    kinds = cp_kinds(subject)
    space = Space(
        max_dp=_most(subject, "data-parallel", dp),
        max_cp=_most(subject, "context-parallel", cp) if kinds else 1,
        max_microbatches=_most(subject, "micro-batches", micro_batches, world=False),
        max_world=subject.max_world,
        cp_kinds=kinds or ("zigzag",),
        min_units=2,
        fan_out="fan-out" in subject.features,
        empty_samples=False,
        empty_steps="empty-steps" in subject.features,
        group_size=subject.group_size,
        whole_groups=subject.keeps_groups_whole,
        whole_shards=subject.keeps_shards_whole and not subject.group_size,
        uniform=subject.rows is not None or "ragged-micro-batches" not in subject.features,
        rows=subject.rows,
        dtypes=("float64",) if subject.nonlinear else _DTYPES,
    )
    return replace(space, **narrowed)


def _most(subject: Subject, feature: str, most: int, *, world: bool = True) -> int:
    """Return the largest size that the check wants, as far as there are ranks and no refusal."""
    if feature not in subject.features:
        return 1
    limits = [most, subject.most(feature), subject.max_world if world else None]
    return min(limit for limit in limits if limit is not None)


def small(subject: Subject, **narrowed: Any) -> Space:
    """Up to two of each size, the trivial layout included: what depends on no layout."""
    return spread(subject, dp=2, cp=2, micro_batches=2, **{"min_units": 1, **narrowed})


def of_a_loss(subject: Subject, **narrowed: Any) -> Space | None:
    """Return the small layouts; None for a candidate that hands the trainer no loss to look at."""
    return small(subject, **narrowed) if "loss-function" in subject.features else None


def alone(subject: Subject, **narrowed: Any) -> Space:
    """One rank, one micro-batch, nothing fully masked."""
    space = Space(
        fan_out="fan-out" in subject.features,
        empty_samples=False,
        empty_steps="empty-steps" in subject.features,
        max_extra_samples=5,
        group_size=subject.group_size,
        rows=subject.rows,
        dtypes=_DTYPES,
    )
    return replace(space, **narrowed)


def hard(
    subject: Subject, own: Space, project: Callable[[Case], Case] = as_it_is
) -> Iterator[Case]:
    """Yield the stored cases that every check begins with, brought into a subject's space."""
    stored = (*hard_cases(), *grid(subject.max_world, own.cp_kinds))
    if subject.nonlinear:
        stored = tuple(replace(case, dtype="float64") for case in stored)
    yield from (case for case in map(project, stored) if case in own)


def hard_and_long(
    subject: Subject, space: Callable[[Subject], Space | None], usual: int
) -> Iterator[Case]:
    """Yield so many of the stored cases that every check begins with, and special ones.

    These have several samples a rollout, one with few tokens of many, and long ones.
    """
    own = space(subject)
    if own is not None:
        stored = list(hard(subject, own))
        yield from stored[:usual]
        yield from (
            case for case in stored[usual:] if len(case.step.samples) > case.step.num_rollouts
        )
        yield from few_and_many()


def with_branches(
    subject: Subject, space: Callable[[Subject], Space | None], usual: int | None = None
) -> Iterator[Case]:
    """Yield so many of the stored cases that every check begins with, then others.

    These are steps around what the subject's code names, and of other shapes that code branches on:
    each path may have its own mistake.
    """
    own = space(subject)
    if own is None:
        return
    yield from islice(hard(subject, own), usual)
    most = {name: -(-number // _PART) for name, number in subject.claim.budget.shapes.items()}
    listed = shaped(own, subject.found.constants, most)
    yield from (case for case in listed if case.step.num_response_tokens <= SHORT)
