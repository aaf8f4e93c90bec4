"""Cases like one on which a condition went one way, of every size: among them are those on which it
goes the other way, where what it compares is worked out from several sizes at once."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import strategies as st

from aggverify.generation.constants import LONGEST_SPREAD, MOST_MICRO_BATCHES, MOST_SAMPLES
from aggverify.generation.shapes import Builder, holed, short, sparse
from aggverify.generation.space import Space
from aggverify.steps.case import Case

_DENSITIES = (16, 1, 4, 8, 12)
"""Unmasked sixteenths of the longest response, the last token included."""


def fixed(case: Case) -> tuple[object, ...]:
    """What cases that are drawn like it have in common."""
    return case.layout.dp_size, case.layout.cp_size, case.layout.cp_kind, case.dtype


def alike(space: Space, case: Case) -> st.SearchStrategy[Case | None]:
    """Cases on as many ranks as this one, and of its dtype; None where the space has not this one.

    Micro-batches, samples of each, tokens of a prompt and of the longest response are as often of
    one power of two as of any other. Smallest: one token on every rank.
    """
    return st.composite(_alike)(space, case)


def _alike(draw: st.DrawFn, space: Space, case: Case) -> Case | None:
    layout = case.layout
    ranks = layout.dp_size
    k = draw(_sizes(max(1, min(space.max_microbatches, MOST_MICRO_BATCHES // ranks))))
    samples = draw(_sizes(max(1, MOST_SAMPLES // (ranks * k))))
    prompt = draw(_sizes(LONGEST_SPREAD))
    density = draw(st.sampled_from(_DENSITIES))
    everywhere = draw(st.booleans())
    length = draw(_sizes(LONGEST_SPREAD // (ranks * k if everywhere else 1)))
    mask = holed(length) if density == _DENSITIES[0] else sparse(length, -(-length * density // 16))
    return Builder(space).case(
        (mask, *short(samples - 1, 1)),
        (ranks, layout.cp_size, k),
        kind=layout.cp_kind,
        dtype=case.dtype,
        prompt=prompt,
        all_cells=everywhere,
    )


@lru_cache(maxsize=256)
def _sizes(most: int) -> st.SearchStrategy[int]:
    """From 1 to that, every power of two as often as any other one."""

    def within(draw: st.DrawFn) -> int:
        first: int = 1 << draw(st.integers(0, most.bit_length() - 1))
        return min(first + draw(st.integers(0, first - 1)), most)

    return st.composite(within)()
