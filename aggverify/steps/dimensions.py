"""What of a case a reducer can decline as a whole: sizes of the layout, and kinds of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aggverify.steps.case import Case, ranks_sharing_groups, ranks_with_parts


@dataclass(frozen=True, slots=True)
class Dimension:
    """A size or kind of step, with the feature by which it is claimed or disclaimed."""

    feature: str
    title: str
    """Follows "refuses" in a sentence."""
    size: Callable[[Case], int]
    """The case's size in it; 1 where the case has nothing of it."""
    concerned: Callable[[Case], set[int]]
    """The ranks that can see it, and so must refuse it."""
    many: bool = False
    """Whether it has more sizes than one and two, so that only larger ones can be declined."""


def _all_ranks(case: Case) -> set[int]:
    return set(range(case.layout.world_size))


def _sliced(kind: str) -> Callable[[Case], int]:
    return lambda case: case.layout.cp_size if case.layout.cp_kind == kind else 1


def _holders(case: Case, samples: set[int]) -> set[int]:
    """Return the ranks that any of these samples is dealt to."""
    return _ranks(case, {d for d, _, cell in case.layout.cells() if samples & set(cell)})


def _ranks(case: Case, dp_ranks: Iterable[int]) -> set[int]:
    """Return the ranks of the world at these data-parallel places."""
    cp = case.layout.cp_size
    return {d * cp + c for d in dp_ranks for c in range(cp)}


def _fanned_out(case: Case) -> set[int]:
    rollouts = case.step.rollouts.values()
    return _holders(case, {i for members in rollouts if len(members) > 1 for i in members})


def _side_by_side(case: Case) -> set[int]:
    """Return the ranks that see several samples of a rollout in one micro-batch."""
    rollouts, cells = [set(r) for r in case.step.rollouts.values()], case.layout.cells()
    return _ranks(case, {d for d, _, cell in cells if any(len(r & {*cell}) > 1 for r in rollouts)})


def _ragged(case: Case) -> set[int]:
    """Return the ranks with micro-batches of different sizes.

    All ranks, where each one's are of one size, but not of the same one as every other's.
    """
    sizes = [{len(cell) for cell in rank} for rank in case.layout.micro_batches]
    if len(set[int]().union(*sizes)) == 1:
        return set()
    return _ranks(case, [d for d, own in enumerate(sizes) if len(own) > 1] or range(len(sizes)))


def _content(feature: str, title: str, concerned: Callable[[Case], set[int]]) -> Dimension:
    return Dimension(feature, title, lambda case: 2 if concerned(case) else 1, concerned)


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension(
        "context-parallel",
        "context parallelism",
        lambda case: case.layout.cp_size,
        _all_ranks,
        many=True,
    ),
    Dimension(
        "data-parallel", "data parallelism", lambda case: case.layout.dp_size, _all_ranks, many=True
    ),
    Dimension(
        "micro-batches",
        "several micro-batches",
        lambda case: case.layout.num_microbatches,
        _all_ranks,
        many=True,
    ),
    Dimension("bshd", "context parallelism over padded rows", _sliced("bshd"), _all_ranks),
    Dimension("contiguous", "contiguous context parallelism", _sliced("contiguous"), _all_ranks),
    Dimension(
        "gathered", "losses gathered over context parallelism", _sliced("gathered"), _all_ranks
    ),
    _content("straddling-groups", "split prompt groups", ranks_with_parts),
    _content(
        "straddling-shards", "prompt groups split over data-parallel ranks", ranks_sharing_groups
    ),
    _content("fan-out", "rollouts of several samples", _fanned_out),
    _content("fan-out", "rollouts of several samples", _side_by_side),
    _content("ragged-micro-batches", "micro-batches of different sizes", _ragged),
)
"""The wider ones first: a refusal that one of them explains needs no narrower one."""

BY_FEATURE = {dimension.feature: dimension for dimension in reversed(DIMENSIONS)}
"""The widest of each feature."""
