"""Hypothesis strategies for steps, layouts and cases: plain data, drawn in the parent process only.

All of them draw the same units (building.py): their number first, so that many are as likely as
few, and it shrinks by itself. A search may lay one step out in several ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from hypothesis import strategies as st

from aggverify.errors import InputError
from aggverify.generation.building import build, build_step, draw_units
from aggverify.generation.choices import integers, of_size, sampled
from aggverify.generation.partition import partition_samples, units_of
from aggverify.generation.space import Size, Space, fitting, sizes
from aggverify.oracles import Sample, Step
from aggverify.oracles.coincidence import distinguishes
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout

SEVERAL = Space(
    max_dp=4,
    max_cp=4,
    max_microbatches=3,
    cp_kinds=("zigzag", "contiguous", "gathered"),
    fan_out=True,
)
"""Every kind of layout on up to eight ranks, rollouts of several samples among the steps."""
MOST_SAMPLES = 6
"""Units of a step that is drawn without a layout."""


@lru_cache(maxsize=64)
def steps(space: Space = SEVERAL) -> st.SearchStrategy[Step]:
    """Draw steps of 1 to 6 samples (or whole prompt groups, where the space has them).

    Prompts of at least one token; smallest: one sample of one token.
    """
    return st.composite(_step)(space)


def _step(draw: st.DrawFn, space: Space) -> Step:
    return build_step(draw_units(draw, space, 1, MOST_SAMPLES), space).step


@lru_cache(maxsize=64)
def layouts(step: Step, space: Space = SEVERAL) -> st.SearchStrategy[Layout]:
    """Layouts of a step within the sizes of a space, prompt groups whole where it wants them so.

    Smallest: one rank, one micro-batch.
    """
    return st.composite(_layout)(step, space)


def _layout(draw: st.DrawFn, step: Step, space: Space) -> Layout:
    whole = space.whole_units or space.group_size is not None
    units = units_of([space.rows or 1] * (len(step.samples) // (space.rows or 1)))
    units = list(step.groups.values()) if whole else units
    bare = any(s.prompt_length < 1 for s in step.samples)  # no logit owns its first token
    left = [size for size in fitting(space, len(units)) if size[1] == 1 or not bare]
    return partition_samples(_size(draw, left, space), units, draw(of_size(len(units))), space)


@lru_cache(maxsize=64)
def cases(space: Space = SEVERAL) -> st.SearchStrategy[Case]:
    """Cases of a space: ragged lengths, holes, fully masked samples, straddling groups, fan-out.

    Smallest: one token on the smallest layout.
    """
    return st.composite(_case)(space)


def _case(draw: st.DrawFn, space: Space) -> Case:
    size = _size(draw, sizes(space), space)
    least, most = _numbers_of_units(size, space)
    units = draw_units(draw, space, least, most)
    if space.uniform:
        units = units[: len(units) // least * least]
    [case] = build(draw, size, units, space, 1)
    return case


def _size(draw: st.DrawFn, left: Sequence[Size], space: Space) -> Size:
    """One of the sizes, each of its numbers drawn by itself, so that each shrinks by itself."""
    if not left:
        raise InputError(f"no layout of this space for so few samples, or none at all: {space}")
    dp = draw(sampled(tuple(sorted({size[0] for size in left}))))
    cp = draw(sampled(tuple(sorted({size[1] for size in left if size[0] == dp}))))
    left = [size for size in left if size[:2] == (dp, cp)]
    k = draw(sampled(tuple(sorted({size[2] for size in left}))))
    size: Size = draw(sampled(tuple(size for size in left if size[2] == k)))
    return size


def _numbers_of_units(size: Size, space: Space) -> tuple[int, int]:
    """Fewest and most units of a case of that size."""
    cells, extra = size[0] * size[2], space.max_extra_samples // (space.group_size or 1)
    if space.rows:
        return cells, cells
    if space.uniform:
        return cells, cells * (1 + space.max_extra_samples // 2)
    if space.shuffled:
        # So many however few the micro-batches: the order of few samples shows little.
        return cells, max(cells, 2 + extra)
    return cells, cells + extra


@lru_cache(maxsize=64)
def related(space: Space, most: int) -> st.SearchStrategy[tuple[Case, ...]]:
    """Up to ``most`` different cases of one step; one only where the step follows the layout."""
    return st.composite(_related)(space, most)


def _related(draw: st.DrawFn, space: Space, most: int) -> tuple[Case, ...]:
    size = draw(sampled(sizes(space)))
    least, greatest = _numbers_of_units(size, space)
    step = least if space.uniform else 1
    number = step * draw(integers(least // step, greatest // step))
    return build(draw, size, draw_units(draw, space, number, number), space, most)


def telling_apart(modes: Iterable[str]) -> st.SearchStrategy[Step]:
    """Draw steps on which these modes have pairwise different weights.

    See semantics.md, "Where the modes coincide".
    """
    names = tuple(modes)
    return (
        steps(Space(empty_samples=False))
        .map(_made_uneven)
        .filter(lambda step: distinguishes(step, names))
    )


def _made_uneven(step: Step) -> Step:
    """Add a prompt with rollouts of one and five tokens: almost every coincidence breaks."""
    rollout = max(step.rollouts) + 1
    group = max(step.groups) + 1
    extra = (
        Sample(1, (1,), rollout, group),
        Sample(2, (1, 1, 0, 1, 1, 1), rollout + 1, group),
    )
    return Step((*step.samples, *extra))
