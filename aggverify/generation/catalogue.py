"""Stored hard cases and a deterministic grid: what every run sees whatever its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, product

from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

_HARD: tuple[tuple[str, str, int, CpKind], ...] = (
    # step, micro-batches, context-parallel size and kind
    ("1/1 2/111", "0 1", 1, "zigzag"),
    ("1/1 2/111", "0 | 1", 1, "zigzag"),
    ("3/1111111", "0", 2, "zigzag"),
    ("3/1111111 9/1111; 2/11111111111 17/1", "0,1 | 2,3", 2, "zigzag"),
    ("40/111", "0", 4, "zigzag"),
    ("9/1011; 5/1101101", "0,1", 4, "contiguous"),
    ("9/1011; 5/1101101", "0 | 1", 2, "gathered"),
    ("3/1101101 9/1011 2/1; 2/11111011 17/1", "0,2 3 | 1 4", 2, "zigzag"),
    ("2/1 3/111; 2/11 5/1 1/11111; 7/111", "0,2 4 | 1 3,5", 1, "zigzag"),
    ("2/11+3/111 4/1111", "0,1,2", 1, "zigzag"),
    ("2/11+3/111 4/1111; 1/1 6/11111+2/1", "0 3 | 1,2 4,5", 1, "zigzag"),
    ("2/11+3/111 4/1111; 1/1 6/11111+2/1", "0,3 1,4 2,5", 2, "zigzag"),
    ("1/1 2/11 3/111; 4/11111 5/1111111", "0 1 | 2 3,4", 3, "zigzag"),
    ("1/1 2/11 3/111; 4/11111 5/1111111; 2/11 3/1", "0 1,5 | 2 3 | 4 6", 2, "zigzag"),
    ("1/1 1/11 1/111; 1/11111 2/1111111; 3/11 4/1", "0 | 1 | 2 | 3,4,5,6", 2, "zigzag"),
    # micro-batches of one size, rows in order, as SkyRL's driver deals them
    ("1/1 2/111; 1/11 2/11111", "0,1 2,3", 1, "zigzag"),
    ("1/1 2/111; 1/11 2/11111", "0,1 | 2,3", 1, "zigzag"),
    ("1/1 2/111 3/11; 1/11 2/11111 4/1", "0,1 2,3 4,5", 1, "zigzag"),
    ("1/1 2/111 3/11; 1/11 2/11111 4/1", "0,1 | 2,3 | 4,5", 1, "zigzag"),
    ("1/1 2/111; 1/11 2/11111; 3/1111 1/1 2/11; 2/1", "0,1 2,3 | 4,5 6,7", 1, "zigzag"),
    ("2/1 3/111 2/11 5/11111 1/11; 2/1111 3/1 4/111", "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7", 1, "zigzag"),
)


@cache
def hard_cases() -> tuple[Case, ...]:
    """The catalogue, with losses that are all different on the dyadic grid."""
    found = []
    for text, cells, cp, kind in _HARD:
        step = parse_step(text)
        layout = Layout(parse_micro_batches(cells), cp, kind)
        found.append(Case(step, layout, plain_losses(step)))
    return tuple(found)


def blanked(case: Case) -> Iterator[Case]:
    """The case with its first sample fully masked, and with its first micro-batch."""
    first = set(next(case.layout.cells())[2])
    for members in dict.fromkeys((frozenset({0}), frozenset(first))):
        samples = (
            replace(s, loss_mask=bytes(s.response_length)) if i in members else s
            for i, s in enumerate(case.step.samples)
        )
        yield replace(case, step=Step(tuple(samples)))


def plain_losses(step: Step) -> tuple[float, ...]:
    """``(3t + 1) / 16`` for token t: positive, distinct, exact in every dtype up to 80 tokens."""
    return tuple((3 * t + 1) / 16 for t in range(step.num_response_tokens))


@cache
def grid(max_world: int, kinds: tuple[CpKind, ...]) -> tuple[Case, ...]:
    """Pairwise over dp, cp, micro-batches, CP kind and dtype; the steps ragged, seeds fixed."""
    return tuple(_grid_case(n, *row) for n, row in enumerate(_pairwise(max_world, kinds)))


@cache
def more_cases(max_world: int, kinds: tuple[CpKind, ...]) -> tuple[Case, ...]:
    """Other steps on the grid's layouts: for telling apart what the stored cases do not."""
    rows = enumerate(_pairwise(max_world, kinds), start=1000)
    return tuple(_grid_case(n, *row) for n, row in rows)


Row = tuple[int, int, int, CpKind, str]


def _pairwise(max_world: int, kinds: tuple[CpKind, ...]) -> Iterator[Row]:
    """A greedy covering array: every pair of values that can occur together does."""
    rows: list[Row] = [
        (d, c, k, kind, dtype)
        for d, c, k, kind, dtype in product(
            (1, 2, 4, 8), (1, 2, 3, 4), (1, 2, 3), kinds or ("zigzag",), ("float64", "float32")
        )
        if d * c <= max_world and d * c in (1, 2, 3, 4, 6, 8)
    ]
    missing = {pair for row in rows for pair in _pairs(row)}
    while missing:
        best = max(rows, key=lambda row: (len(missing & _pairs(row)), -row[0] * row[1]))
        missing -= _pairs(best)
        yield best


def _pairs(row: Row) -> set[object]:
    return {((i, row[i]), (j, row[j])) for i, j in combinations(range(len(row)), 2)}


def _grid_case(seed: int, dp: int, cp: int, k: int, kind: CpKind, dtype: str) -> Case:
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
