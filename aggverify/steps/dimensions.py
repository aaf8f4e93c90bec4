"""What of a case a reducer can decline as a whole: sizes of the layout, and kinds of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aggverify.steps.case import Case, ranks_sharing_groups, ranks_with_parts


@dataclass(frozen=True, slots=True)
class Dimension:
    """One of them, by the feature that is claimed or disclaimed with it."""

    feature: str
    title: str
    """After "refuses"."""
    size: Callable[[Case], int]
    """How far a case goes in it; 1 is nothing."""
    concerned: Callable[[Case], set[int]]
    """The ranks that can see it."""
    many: bool = False
    """Whether it has sizes, so that it can be declined beyond one of them."""


def _everybody(case: Case) -> set[int]:
    return set(range(case.layout.world_size))


def _sliced(kind: str) -> Callable[[Case], int]:
    return lambda case: case.layout.cp_size if case.layout.cp_kind == kind else 1


def _holders(case: Case, samples: set[int]) -> set[int]:
    """Return the ranks that any of these samples is dealt to."""
    cp = case.layout.cp_size
    found = {d for d, _, cell in case.layout.cells() if samples & set(cell)}
    return {d * cp + c for d in found for c in range(cp)}


def _fanned_out(case: Case) -> set[int]:
    rollouts = case.step.rollouts.values()
    return _holders(case, {i for members in rollouts if len(members) > 1 for i in members})


def _side_by_side(case: Case) -> set[int]:
    """Return the ranks that see several samples of a rollout in one micro-batch."""
    rollouts = [set(members) for members in case.step.rollouts.values()]
    cp = case.layout.cp_size
    found = {
        d for d, _, cell in case.layout.cells() if any(len(r & set(cell)) > 1 for r in rollouts)
    }
    return {d * cp + c for d in found for c in range(cp)}


def _ragged(case: Case) -> set[int]:
    """Return the ranks whose own micro-batches differ.

    All of them where only those of several do.
    """
    layout = case.layout
    rows = [{len(cell) for cell in rank} for rank in layout.micro_batches]
    if len(set[int]().union(*rows)) == 1:
        return set()
    uneven = [d for d, row in enumerate(rows) if len(row) > 1] or range(len(rows))
    return {d * layout.cp_size + c for d in uneven for c in range(layout.cp_size)}


def _content(feature: str, title: str, concerned: Callable[[Case], set[int]]) -> Dimension:
    return Dimension(feature, title, lambda case: 2 if concerned(case) else 1, concerned)


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension(
        "context-parallel",
        "context parallelism",
        lambda case: case.layout.cp_size,
        _everybody,
        many=True,
    ),
    Dimension(
        "data-parallel", "data parallelism", lambda case: case.layout.dp_size, _everybody, many=True
    ),
    Dimension(
        "micro-batches",
        "several micro-batches",
        lambda case: case.layout.num_microbatches,
        _everybody,
        many=True,
    ),
    Dimension("bshd", "context parallelism over padded rows", _sliced("bshd"), _everybody),
    Dimension("contiguous", "contiguous context parallelism", _sliced("contiguous"), _everybody),
    Dimension(
        "gathered", "losses gathered over context parallelism", _sliced("gathered"), _everybody
    ),
    _content("straddling-groups", "split prompt groups", ranks_with_parts),
    _content(
        "straddling-shards", "prompt groups split over data-parallel ranks", ranks_sharing_groups
    ),
    _content("fan-out", "rollouts of several samples", _fanned_out),
    _content("fan-out", "rollouts of several samples", _side_by_side),
    _content("ragged-micro-batches", "micro-batches of different sizes", _ragged),
)
"""The wider ones first: where they differ no other is needed."""

BY_FEATURE = {dimension.feature: dimension for dimension in reversed(DIMENSIONS)}
"""The widest of each feature."""
