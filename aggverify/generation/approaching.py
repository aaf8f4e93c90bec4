"""Cases like one on which a condition went one way, of every size: among them are those on which it
goes the other way, where what it compares is worked out from several sizes at once."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import strategies as st

from aggverify.generation.constants import LONGEST_SPREAD, MOST_MICRO_BATCHES, MOST_SAMPLES
from aggverify.generation.shapes import Builder, holed, short, sparse
from aggverify.generation.space import Space
from aggverify.steps.case import Case

_STEPS = 8
"""Of a size from one power of two to the next."""
_DENSITIES = (16, 1, 4, 8, 12)
"""Unmasked sixteenths of the longest response, the last token included."""


def fixed(case: Case) -> tuple[object, ...]:
    """What cases that are drawn like it have in common."""
    return case.layout.dp_size, case.layout.cp_size, case.layout.cp_kind, case.dtype


def alike(space: Space, case: Case) -> st.SearchStrategy[Case | None]:
    """Cases on as many ranks as this one, and of its dtype; None where the space has not this one.

    Micro-batches, samples of each, tokens of a prompt and of the longest response are as often from
    one power of two to the next as from any other. Smallest: one token on every rank.
    """
    return st.composite(_alike)(space, case)


def _alike(draw: st.DrawFn, space: Space, case: Case) -> Case | None:
    layout = case.layout
    ranks = layout.dp_size
    most = max(1, min(space.max_microbatches, MOST_MICRO_BATCHES // ranks))
    k = draw(_sizes(most)) if draw(st.booleans()) else 1  # the fewer, the more samples in each
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
    """From 1 to that, in steps of a part of a power of two, each as often as any other one: so few
    of them that a way through all is short; and then what lies within one."""
    firsts = sorted({round(2 ** (n / _STEPS)) for n in range(_STEPS * most.bit_length())})
    firsts = [first for first in firsts if first <= most]
    ends = [*firsts[1:], most + 1]

    def within(draw: st.DrawFn) -> int:
        n = draw(st.integers(0, len(firsts) - 1))
        return draw(st.integers(firsts[n], ends[n] - 1))

    return st.composite(within)()
