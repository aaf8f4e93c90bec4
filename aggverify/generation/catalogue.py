"""Stored hard cases and a deterministic grid: what every run sees whatever its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, product

from aggverify.generation.corpus import corpus
from aggverify.generation.corpus import plain_losses as plain_losses
from aggverify.generation.space import WORLDS
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout


@cache
def hard_cases() -> tuple[Case, ...]:
    """Those of the corpus that every check begins with."""
    return tuple(hard.case for hard in corpus() if not hard.checks)


def unit_case() -> Case:
    """One token alone: every normalised mode gives it weight 1."""
    step = Step((Sample(1, (1,), 0, 0),))
    return Case(step, Layout.trivial(1), plain_losses(step))


def fully_masked(case: Case) -> Iterator[Case]:
    """Yield the case with its first sample, first micro-batch, or last ones fully masked."""
    first = frozenset(next(case.layout.cells())[2])
    last = frozenset(i for rank in case.layout.micro_batches for i in rank[-1])
    for members in dict.fromkeys((frozenset({0}), first, last)):
        samples = (
            replace(s, loss_mask=bytes(s.response_length)) if i in members else s
            for i, s in enumerate(case.step.samples)
        )
        yield replace(case, step=Step(tuple(samples)))


@cache
def grid(max_world: int, kinds: tuple[CpKind, ...]) -> tuple[Case, ...]:
    """Pairwise over dp, cp, micro-batches, CP kind and dtype; the steps ragged, seeds fixed."""
    return tuple(grid_case(n, *row) for n, row in enumerate(_pairwise(max_world, kinds)))


@cache
def more_cases(max_world: int, kinds: tuple[CpKind, ...]) -> tuple[Case, ...]:
    """Return other steps on the grid's layouts, and prompt groups whose samples are apart.

    They distinguish what the stored cases do not.
    """
    rows = enumerate(_pairwise(max_world, kinds), start=1000)
    return (*(grid_case(n, *row) for n, row in rows), _apart(4), _apart(2))


def _apart(rollouts: int) -> Case:
    """Four samples of two prompt groups in turn, in one micro-batch; of 4 or of 2 rollouts."""
    lengths = (1, 2, 3, 5)
    step = Step(tuple(Sample(1, (1,) * n, i % rollouts, i % 2) for i, n in enumerate(lengths)))
    return Case(step, Layout((((0, 1, 2, 3),),)), plain_losses(step))


Row = tuple[int, int, int, CpKind, str]


def _pairwise(max_world: int, kinds: tuple[CpKind, ...]) -> Iterator[Row]:
    """Yield a greedy covering array: every pair of values that can occur together does."""
    rows: list[Row] = [
        (d, c, k, kind, dtype)
        for d, c, k, kind, dtype in product(
            (1, 2, 4, 8), (1, 2, 3, 4), (1, 2, 3), kinds or ("zigzag",), ("float64", "float32")
        )
        if d * c <= max_world and d * c in WORLDS
    ]
    missing = {pair for row in rows for pair in _pairs(row)}
    while missing:
        best = max(rows, key=lambda row: (len(missing & _pairs(row)), -row[0] * row[1]))
        missing -= _pairs(best)
        yield best


def _pairs(row: Row) -> set[object]:
    return {((i, row[i]), (j, row[j])) for i, j in combinations(range(len(row)), 2)}


def grid_case(seed: int, dp: int, cp: int, k: int, kind: CpKind, dtype: str) -> Case:
    """Return a ragged step, the same for a seed, with that layout."""
    rng = random.Random(seed)
    count = dp * k + rng.randrange(1, 4)
    cells: list[list[int]] = [[] for _ in range(dp * k)]
    for i in range(count):
        cells[i if i < len(cells) else rng.randrange(len(cells))].append(i)
    samples, group = [], 0
    for i in range(count):
        group += i > 0 and rng.random() < 0.4
        length = rng.choice((1, 2, 3, 5, 7, 11))
        mask = [int(rng.random() < 0.8) for _ in range(length)]
        mask[rng.randrange(length)] = 1
        samples.append(Sample(rng.choice((1, 2, 3, 9, 17)), tuple(mask), i, group))
    step = Step(tuple(samples))
    dealt = tuple(tuple(tuple(cells[d * k + j]) for j in range(k)) for d in range(dp))
    return Case(step, Layout(dealt, cp, kind), plain_losses(step), dtype)
