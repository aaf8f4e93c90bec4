"""Every step and layout up to a size: what random testing cannot prove of small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product

from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout

Cells = tuple[tuple[int, ...], ...]
"""Numbers of samples: per rank, per micro-batch."""


@dataclass(frozen=True, slots=True)
class Box:
    """How far the enumeration goes. Prompts have one token; losses are 1, 2, 3 ... in order."""

    samples: int
    tokens: int
    ranks: int
    cp_kinds: tuple[CpKind, ...] = ("zigzag",)
    fan_out: bool = False
    """Whether rollouts of several samples are among the steps."""

    def __str__(self) -> str:
        kinds = f", {' and '.join(self.cp_kinds)} context parallelism" if self.cp_kinds else ""
        rollouts = "every split into rollouts" if self.fan_out else "one rollout a sample"
        return (
            f"up to {self.samples} samples of up to {self.tokens} tokens: every mask, every "
            f"prompt grouping, {rollouts}, every layout with dp * cp <= {self.ranks}{kinds}, every "
            f"contiguous split into micro-batches, equally many on each rank, none without a sample"
        )


def every_case(box: Box) -> Iterator[Case]:
    """All cases of a box, smallest steps first, one of each class of symmetric ones.

    Symmetric are cases that differ in the order of samples within a micro-batch, of micro-batches
    on a rank, or of ranks, and in the names of rollouts and prompt groups.
    """
    for count in range(1, box.samples + 1):
        for cells in _splits(count, box.ranks):
            sizes = range(1, box.ranks // len(cells) + 1 if box.cp_kinds else 2)
            layouts = [
                Layout(_numbered(cells), cp_size, kind)
                for cp_size in sizes
                for kind in (box.cp_kinds if cp_size > 1 else ("zigzag",))
            ]
            for step in _steps(count, cells, box.tokens, box.fan_out):
                losses = tuple(float(t + 1) for t in range(step.num_response_tokens))
                yield from (Case(step, layout, losses) for layout in layouts)


def _steps(count: int, cells: Cells, tokens: int, fan_out: bool) -> Iterator[Step]:
    """Yield one step of each class: the one that no symmetry of these cells makes smaller."""
    masks = _masks(tokens)
    symmetries = _symmetries(cells)
    for labels in _labels(count, fan_out):
        for chosen in product(range(len(masks)), repeat=count):
            if all((chosen, labels) <= _moved(chosen, labels, order) for order in symmetries):
                yield Step(
                    tuple(
                        Sample(1, masks[m], rollout, group)
                        for m, (group, rollout) in zip(chosen, labels, strict=True)
                    )
                )


@lru_cache(maxsize=8)
def _masks(tokens: int) -> tuple[bytes, ...]:
    return tuple(bytes(bits) for n in range(1, tokens + 1) for bits in product((1, 0), repeat=n))


Labels = tuple[tuple[int, int], ...]
"""(prompt group, rollout) of each sample, both numbered in order of first appearance."""


def _labels(count: int, fan_out: bool) -> list[Labels]:
    """Every way to put samples into rollouts and rollouts into prompt groups."""
    found: dict[Labels, None] = {}
    for groups in product(range(count), repeat=count):
        for inside in product(range(count if fan_out else 1), repeat=count):
            rollouts = list(zip(groups, inside if fan_out else range(count), strict=True))
            found[_renamed(groups, rollouts)] = None
    return list(found)


def _renamed(groups: Iterable[object], rollouts: Iterable[object]) -> Labels:
    """Return both, numbered in order of first appearance."""
    names: list[dict[object, int]] = [{}, {}]
    columns = [
        [known.setdefault(name, len(known)) for name in column]
        for known, column in zip(names, (groups, rollouts), strict=True)
    ]
    return tuple(zip(*columns, strict=True))


@lru_cache(maxsize=1 << 16)
def _moved_labels(labels: Labels, order: tuple[int, ...]) -> Labels:
    moved = [labels[i] for i in order]
    return _renamed([group for group, _ in moved], [rollout for _, rollout in moved])


def _moved(
    chosen: tuple[int, ...], labels: Labels, order: tuple[int, ...]
) -> tuple[tuple[int, ...], Labels]:
    return tuple(chosen[i] for i in order), _moved_labels(labels, order)


def _splits(count: int, ranks: int) -> list[Cells]:
    """Numbers of samples per rank and micro-batch, none empty; one order of each."""
    found: dict[Cells, None] = {}
    for dp_size in range(1, min(ranks, count) + 1):
        for k in range(1, count // dp_size + 1):
            for sizes in product(range(1, count + 1), repeat=dp_size * k):
                if sum(sizes) == count:
                    rows = (sizes[d * k : (d + 1) * k] for d in range(dp_size))
                    found[tuple(sorted(tuple(sorted(row)) for row in rows))] = None
    return list(found)


def _numbered(cells: Cells) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Sample indices in order, dealt to the cells."""
    start, ranks = 0, []
    for row in cells:
        rank = []
        for size in row:
            rank.append(tuple(range(start, start + size)))
            start += size
        ranks.append(tuple(rank))
    return tuple(ranks)


def _symmetries(cells: Cells) -> list[tuple[int, ...]]:
    """Return orders of the samples that map ranks onto ranks, micro-batches onto micro-batches."""
    numbered = _numbered(cells)
    shape = {frozenset(frozenset(cell) for cell in rank) for rank in numbered}
    count = sum(map(sum, cells))
    return [
        order
        for order in permutations(range(count))
        if {frozenset(frozenset(order[i] for i in cell) for cell in rank) for rank in numbered}
        == shape
    ]
