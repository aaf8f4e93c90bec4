"""A case out of a byte string: every choice is some bytes of it, and a byte of 0 the simplest one.

Lengths and one value per sample are read, not elements: rare imbalance is found more often so than
with masks drawn token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

from aggverify.generation.space import Size, Space, fitting
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.padding import Padding, padded
from aggverify.steps.reordering import by_groups, renamed

GRID = 256
"""Losses are multiples of 1/GRID: undivided sums of them are exact in any order."""

T = TypeVar("T")


class Source:
    """Reads choices from bytes; zeros follow after their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        start, self._at = self._at, self._at + count
        return self._data[start : self._at].ljust(count, b"\0")

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, the first for 0."""
        width = 1 if len(choices) <= 256 else 2
        return choices[int.from_bytes(self.take(width)) * len(choices) >> 8 * width]

    def flag(self) -> bool:
        """One bit."""
        return self.take(1)[0] > 127


def build(source: Source, size: Size, units: int, space: Space, most: int) -> tuple[Case, ...]:
    """A case of this size and number of dealt units, and others of its step under other layouts.

    ``most``: different cases at most; there is one only where the step follows the layout.
    """
    sizes = _unit_sizes(source, units, space)
    step = build_step(source, sizes, space)
    layout = _layout(source, size, sizes, space)
    if space.blank_a_unit:
        step = _blanked(step, source.pick(_units(step, layout)))
    if space.needs_hole and step.num_unmasked == step.num_response_tokens:
        step = _with_hole(step)
    if space.padded:
        padding = Padding(source.pick((0, 1, 2)), source.flag(), space.dummies and source.flag())
        step, layout = padded(step, layout, padding)
    if space.shuffled:
        step, layout = _shuffled(source, step, layout, space)
    case = Case(step, layout, build_losses(source, step), source.pick(space.dtypes))
    if space.padded or space.shuffled:
        return (case,)
    layouts = {layout: None}
    for _ in range(most - 1):
        size = source.pick(fitting(space, len(sizes)))
        layouts[_layout(source, size, sizes, space)] = None
    return tuple(map(case.with_layout, layouts))


def enough(units: int, space: Space, most: int) -> int:
    """Bytes that hold every choice of a case with that many units."""
    samples = units * (space.group_size or (3 if space.whole_groups else 1))
    rows = samples * (2 if space.dummies else 1)
    return 16 + samples * _record_size(space) + 2 * rows + units + most * (2 + units)


def _unit_sizes(source: Source, units: int, space: Space) -> list[int]:
    """How many samples each unit has that is dealt to one micro-batch: mostly one."""
    if space.whole_groups:
        return [source.pick(_mostly_short(3)) for _ in range(units)]
    return [space.group_size or 1] * units


@lru_cache(maxsize=64)
def _mostly_short(longest: int) -> tuple[int, ...]:
    """Half of the time 1 to 3, otherwise up to ``longest``."""
    short = tuple(range(1, min(3, longest) + 1))
    return tuple(sorted(short * (1 + longest // 3) + tuple(range(1, longest + 1))))


def build_step(source: Source, units: Sequence[int], space: Space) -> Step:
    """``units``: samples of each unit that is dealt to one micro-batch, mostly 1."""
    starts = set(accumulate(units, initial=0))
    whole = space.whole_groups or space.group_size is not None
    fan_out = space.fan_out
    if fan_out and space.shuffled:
        fan_out = source.flag()  # goes first, while lengths still differ
    relations = (0, 1, 2) if fan_out else (0, 1)
    samples: list[Sample] = []
    group = rollout = 0
    for i in range(sum(units)):
        # 0: a new prompt, 1: another rollout of the same, 2: another sample of the same rollout.
        relation = source.pick(relations)
        relation = relation if i and not space.group_size else 0
        if whole:
            relation = 0 if i in starts else max(relation, 1)
        elif space.split_groups and i == 1:
            relation = 1  # the first two samples are dealt to different micro-batches
        group += relation == 0 and i > 0
        rollout += relation < 2 and i > 0
        samples.append(_sample(source, rollout, group, space))
    return Step(tuple(samples))


def _record_size(space: Space) -> int:
    """Bytes of a sample: kinship, length, prompt, the masked tokens, the rejected ones."""
    return 3 + _mask_bytes(space) * (2 if space.rejects else 1)


def _mask_bytes(space: Space) -> int:
    """Bytes that hold one bit per token and one more."""
    return space.max_length // 8 + 1


def _sample(source: Source, rollout: int, group: int, space: Space) -> Sample:
    if space.lengths:
        return Sample(1, b"\1" * source.pick(space.lengths), rollout, group)
    length = source.pick(_mostly_short(space.max_length))
    prompt = source.pick(_mostly_short(3 * space.max_length))
    full = (1 << length) - 1
    # A bit set of masked tokens; with the bit above them, none.
    holes = int.from_bytes(source.take(_mask_bytes(space))) & (2 * full + 1)
    if holes > full:
        holes = 0
    if holes == full and not space.empty_samples:
        holes = full >> 1
    counted = full ^ holes
    if not space.rejects:
        return Sample(prompt, _bits(counted, length), rollout, group)
    rejected = int.from_bytes(source.take(_mask_bytes(space))) & (counted if length > 1 else 0)
    mask = _bits(counted ^ rejected, length)
    return Sample(prompt, mask, rollout, group, _bits(counted, length) if rejected else None)


def _bits(mask: int, length: int) -> bytes:
    return f"{mask:0{length}b}".encode().translate(_BITS)


_BITS = bytes.maketrans(b"01", b"\0\1")


def build_losses(source: Source, step: Step) -> tuple[float, ...]:
    """One value per sample on the dyadic grid, and one slope along all responses."""
    out: list[float] = []
    slope = source.pick((0, 1, 2, 3))
    drawn = source.take(2 * len(step.samples))
    for n, sample in enumerate(step.samples):
        folded = (drawn[2 * n] & 3) << 8 | drawn[2 * n + 1]
        base = folded >> 1 if folded % 2 == 0 else -(folded + 1 >> 1)
        out += [(base + slope * t) / GRID for t in range(sample.response_length)]
    return tuple(out)


def _layout(source: Source, size: Size, units: Sequence[int], space: Space) -> Layout:
    """A layout of this size: units dealt to dp*k cells, none empty, in turn and then anywhere."""
    dp, cp, k, kind = size
    count, data = dp * k, source.take(len(units))
    cells: list[list[int]] = [[] for _ in range(count)]
    for unit in range(len(units)):
        if space.uniform:
            cells[unit * count // len(units)].append(unit)
        else:
            cells[unit if unit < count else data[unit] * count >> 8].append(unit)
    dealt = tuple(tuple(tuple(cells[d * k + j]) for j in range(k)) for d in range(dp))
    return Layout(_spread(dealt, units), cp, kind)


def _spread(
    dealt: tuple[tuple[tuple[int, ...], ...], ...], sizes: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Replace each dealt unit by its consecutive samples."""
    starts = list(accumulate(sizes, initial=0))
    return tuple(
        tuple(tuple(i for u in cell for i in range(starts[u], starts[u + 1])) for cell in rank)
        for rank in dealt
    )


def _units(step: Step, layout: Layout) -> list[tuple[int, ...]]:
    """Every unit that can be fully masked, as sample indices, smallest first."""
    units: list[tuple[int, ...]] = [(i,) for i in range(len(step.samples))]
    units += step.rollouts.values()
    units += step.groups.values()
    units += [cell for _, _, cell in layout.cells()]
    units += [tuple(i for cell in rank for i in cell) for rank in layout.micro_batches]
    units.append(tuple(range(len(step.samples))))
    return sorted(set(units), key=lambda unit: (len(unit), unit))


def _blanked(step: Step, unit: tuple[int, ...]) -> Step:
    samples = list(step.samples)
    for i in unit:
        samples[i] = replace(samples[i], loss_mask=bytes(samples[i].response_length))
    return Step(tuple(samples))


def _shuffled(source: Source, step: Step, layout: Layout, space: Space) -> tuple[Step, Layout]:
    """A few drawn switches rather than permutations: they shrink whatever the number of samples."""
    names = _turned(source, step.num_groups), _turned(source, step.num_rollouts)
    if space.uniform or space.group_size is not None:
        order = by_groups(step, _turned(source, step.num_groups))
    elif space.whole_groups:
        order = list(range(len(step.samples)))
    else:
        stride = source.pick((1, 2, 3))
        order = sorted(_turned(source, len(step.samples)), key=lambda i: i % stride)
    step = renamed(Step(tuple(step.samples[i] for i in order)), *names)
    if not space.uniform:
        turned = space.whole_groups and source.flag()
        ranks = [
            [rank[k][:: -1 if turned else 1] for k in _turned(source, len(rank))]
            for rank in layout.micro_batches
        ]
        cells = tuple(tuple(ranks[d]) for d in _turned(source, len(ranks)))
        layout = replace(layout, micro_batches=cells)
    return step, layout


def _turned(source: Source, count: int) -> list[int]:
    """The numbers below ``count``, forwards or backwards."""
    return list(range(count))[:: -1 if source.flag() else 1]


def _with_hole(step: Step) -> Step:
    """Mask the first token of the last sample and give it one more token to keep its count."""
    *rest, last = step.samples
    original = None if last.original_mask is None else b"\0" + last.original_mask
    longer = replace(last, loss_mask=b"\0" + last.loss_mask, original_mask=original)
    return Step((*rest, longer))
