"""Samples partitioned over ranks and micro-batches, and everything put in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise

from hypothesis.strategies import DrawFn

from aggverify.generation.choices import flag, order, pick
from aggverify.generation.space import Size, Space
from aggverify.oracles import Step
from aggverify.steps.layouts import Layout
from aggverify.steps.reordering import by_groups, renamed

Unit = tuple[int, ...]
"""Sample indices that stay together in one micro-batch."""


def units_of(sizes: Sequence[int]) -> list[Unit]:
    """Units of so many consecutive samples each."""
    return [tuple(range(a, b)) for a, b in pairwise(accumulate(sizes, initial=0))]


def partition_samples(size: Size, units: Sequence[Unit], where: bytes, space: Space) -> Layout:
    """Return a layout of this size: units dealt to dp * k micro-batches, none empty.

    The first units go to one each, and every other one where its byte of ``where`` puts it: a byte
    is the same part of the micro-batches, however many there are. Where these have one size, all
    are dealt in order.
    """
    dp, cp, k, kind = size
    count = dp * k
    cells: list[list[Unit]] = [[] for _ in range(count)]
    for n, unit in enumerate(units):
        if space.uniform:
            cells[n * count // len(units)].append(unit)
        else:
            cells[n if n < count else where[n] * count >> 8].append(unit)
    samples = [tuple(chain.from_iterable(cell)) for cell in cells]
    ranks = [tuple(samples[d * k : (d + 1) * k]) for d in range(dp)]
    if space.whole_shards and not (space.whole_groups or space.uniform):
        ranks = [_scattered(cells) if where[d * k] & 1 else cells for d, cells in enumerate(ranks)]
    return Layout(tuple(ranks), cp, kind)


def _scattered(cells: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Deal a rank's samples to its micro-batches one by one, which splits prompt groups."""
    every = tuple(chain.from_iterable(cells))
    return tuple(every[k :: len(cells)] for k in range(len(cells)))


def permuted(draw: DrawFn, step: Step, layout: Layout, space: Space) -> tuple[Step, Layout]:
    """Draw another order of samples, ids, micro-batches and ranks.

    Where prompt groups must stay whole, only whole groups are moved, or no samples at all.
    """
    names = order(draw, step.num_groups), order(draw, step.num_rollouts)
    if space.uniform or space.group_size is not None:
        placed = by_groups(step, order(draw, step.num_groups))
    elif space.whole_units:
        placed = list(range(len(step.samples)))
    else:
        stride = pick(draw, (1, 2, 3))
        placed = sorted(order(draw, len(step.samples)), key=lambda i: i % stride)
    step = renamed(Step(tuple(step.samples[i] for i in placed)), *names)
    if not space.uniform:
        turned = space.whole_units and flag(draw)
        ranks = [
            [rank[k][:: -1 if turned else 1] for k in order(draw, len(rank))]
            for rank in layout.micro_batches
        ]
        cells = tuple(tuple(ranks[d]) for d in order(draw, len(ranks)))
        layout = replace(layout, micro_batches=cells)
    return step, layout
