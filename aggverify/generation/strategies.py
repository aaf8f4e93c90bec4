"""Hypothesis strategies for steps and cases. They draw plain data, in the parent process only.

A draw costs much, what is drawn hardly anything: a case is two small numbers and a byte string.
Nor is there then anything that Hypothesis would copy from one place of a case to another, instead
of drawing a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter

from hypothesis import strategies as st

from aggverify.generation.building import Source, build, build_step, enough
from aggverify.generation.space import Space, sizes
from aggverify.oracles import Sample, Step
from aggverify.oracles.coincidence import tells_apart
from aggverify.steps.case import Case

# Strategy objects are built once: building them costs more than drawing from them.
_integers = lru_cache(maxsize=1024)(st.integers)


_sampled = lru_cache(maxsize=256)(st.sampled_from)


@lru_cache(maxsize=1024)
def _bytes(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


@lru_cache(maxsize=64)
def cases(space: Space) -> st.SearchStrategy[Case]:
    """Cases of a space: ragged lengths, holes, fully masked samples, straddling groups, fan-out."""
    return related(space, 1).map(itemgetter(0))


@lru_cache(maxsize=64)
def related(space: Space, most: int) -> st.SearchStrategy[tuple[Case, ...]]:
    """Up to ``most`` different cases of one step; one only where the step follows the layout."""
    return st.composite(_related)(space, most)


def _related(draw: st.DrawFn, space: Space, most: int) -> tuple[Case, ...]:
    size = draw(_sampled(sizes(space)))
    cells, extra = size[0] * size[2], space.max_extra_samples // (space.group_size or 1)
    if space.uniform:
        units = cells * draw(_integers(1, 1 + space.max_extra_samples // 2))
    elif space.shuffled:
        # Independent of the layout: it shrinks while the samples that show the fault stay.
        units = max(cells, draw(_integers(1, 2 + extra)))
    else:
        units = cells + draw(_integers(0, extra))
    source = Source(draw(_bytes(enough(units, space, most))))
    return build(source, size, units, space, most)


def steps(space: Space) -> st.SearchStrategy[Step]:
    """Steps of 1 to 6 samples; prompts of at least one token."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Step:
        units = draw(_integers(1, 6))
        return build_step(Source(draw(_bytes(enough(units, space, 1)))), [1] * units, space)

    return drawn()


def telling_apart(modes: Iterable[str]) -> st.SearchStrategy[Step]:
    """Steps on which these modes have pairwise different weights (semantics.md, "Where the modes
    coincide")."""
    names = tuple(modes)
    return (
        steps(Space(empty_samples=False))
        .map(_made_uneven)
        .filter(lambda step: tells_apart(step, names))
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
