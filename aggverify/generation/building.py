"""A case out of what Hypothesis draws: samples of units, and what is of the whole step.

Of a sample its length, its mask as one number, and its first loss are drawn. Rare imbalance is
found more often so than with masks drawn token by token. A unit left out leaves the others as they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from hypothesis import strategies as st

from aggverify.generation.choices import (
    flag,
    integers,
    mostly_short,
    of_size,
    pick,
)
from aggverify.generation.partition import Unit, partition_samples, permuted, units_of
from aggverify.generation.shapes import NAMINGS, named
from aggverify.generation.space import Size, Space, fitting
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.padding import Padding, padded

GRID = 256
"""Losses are multiples of 1/GRID: undivided sums of them are exact in any order."""
LARGEST_GROUP = 3
"""Samples of a unit at most where units are whole prompt groups of any size."""


@dataclass(frozen=True, slots=True)
class DrawnSample:
    """One sample, and how it goes with the one before."""

    relation: int
    """0: a new prompt, 1: another rollout of the same, 2: another sample of the same rollout."""
    prompt_length: int
    mask: bytes
    original: bytes | None
    """The mask before some tokens were rejected; None where none is."""
    level: int
    """Its first loss, in multiples of 1/GRID."""


DrawnUnit = tuple[int, list[DrawnSample]]
"""A byte for the micro-batch, and the samples that are dealt to it together."""


_KINDS = tuple(product((0, 1, 2), (False, True)))
"""How a sample goes with the one before, and whether it has holes."""


@lru_cache(maxsize=64)
def samples(space: Space) -> st.SearchStrategy[DrawnSample]:
    """Draw one sample; smallest: one unmasked token."""
    return st.composite(_sample)(space)


def _sample(draw: st.DrawFn, space: Space) -> DrawnSample:
    # One draw for two things: every draw of a sample costs calls when Hypothesis shrinks.
    relation, has_holes = pick(draw, _KINDS if space.fan_out else _KINDS[:4])
    prompt, original = 1, None
    if space.holes:
        prompt, mask = draw(integers(1, 256)), _holed(draw, space, has_holes=has_holes)
    elif space.lengths:
        mask = b"\1" * pick(draw, space.lengths)
    else:
        length = pick(draw, mostly_short(space.max_length))
        prompt = pick(draw, mostly_short(3 * space.max_length))
        mask, original = _masks(draw, length, space, has_holes=has_holes)
    return DrawnSample(relation, prompt, mask, original, draw(integers(-512, 511)))


def _masks(
    draw: st.DrawFn, length: int, space: Space, *, has_holes: bool
) -> tuple[bytes, bytes | None]:
    """Nothing is masked, or each token whose bit is set; and what is rejected of the others."""
    full = (1 << length) - 1
    # Of one range for every length, so that a shorter response keeps the lowest bits.
    holes = draw(integers(0, (1 << space.max_length) - 1)) & full if has_holes else 0
    if holes == full and not space.empty_samples:
        holes = full >> 1
    counted = full ^ holes
    if not space.rejects:
        return _bits(counted, length), None
    rejected = draw(integers(0, (1 << space.max_length) - 1)) & (counted if length > 1 else 0)
    return _bits(counted ^ rejected, length), _bits(counted, length) if rejected else None


def _holed(draw: st.DrawFn, space: Space, *, has_holes: bool) -> bytes:
    """Return the mask of a response of one of the lengths, one block of it masked or nothing."""
    mask = bytearray(b"\1" * pick(draw, space.lengths))
    if has_holes:
        begin, width = (byte * len(mask) >> 8 for byte in draw(of_size(2)))
        mask[begin : begin + width] = bytes(len(mask[begin : begin + width]))
    return bytes(mask) if space.empty_samples or any(mask) else b"\1" * len(mask)


def _bits(mask: int, length: int) -> bytes:
    """Return a byte a token, from the lowest bit on: a shorter response keeps its first ones."""
    return f"{mask:0{length}b}"[::-1].encode().translate(_BITS)


_BITS = bytes.maketrans(b"01", b"\0\1")


def draw_units(draw: st.DrawFn, space: Space, least: int, most: int) -> list[DrawnUnit]:
    """Draw what is dealt to micro-batches as a whole: a sample, or a prompt group."""
    count = space.rows or (None if space.whole_units else space.group_size or 1)
    if count is None and space.uniform:
        # Then equally many units make micro-batches of one size.
        count = pick(draw, mostly_short(LARGEST_GROUP))
    number = draw(integers(least, most))
    return draw(_units(space, count, number, number))


@lru_cache(maxsize=256)
def _units(
    space: Space, count: int | None, least: int, most: int
) -> st.SearchStrategy[list[DrawnUnit]]:
    """Draw units of ``count`` samples, or of any number."""
    sizes = (1, LARGEST_GROUP) if count is None else (count, count)
    some = st.lists(samples(space), min_size=sizes[0], max_size=sizes[1])
    # The byte goes with its unit, which can then be left out without a change of the others.
    unit = st.tuples(integers(0, 255), some)
    return st.lists(unit, min_size=least, max_size=most)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step as drawn, with what its units determine of the rest of a case."""

    step: Step
    units: list[Unit]
    where: bytes
    """One byte a unit: the micro-batch it is dealt to."""
    levels: list[int]
    """One a sample: its first loss, in multiples of 1/GRID."""


def build_step(units: Sequence[DrawnUnit], space: Space) -> Drawn:
    """Return the step whose units these are."""
    whole = space.whole_units or space.group_size is not None
    made: list[Sample] = []
    group = rollout = -1
    for _, unit in units:
        for n, sample in enumerate(unit):
            relation = sample.relation
            if not made or (whole and n == 0):
                relation = 0
            elif whole:
                relation = 1 if space.group_size else max(relation, 1)
            elif space.split_groups and len(made) == (space.rows or 1):
                relation = 1  # of one prompt, and dealt to different micro-batches
            group += relation == 0
            rollout += relation < 2
            made.append(Sample(sample.prompt_length, sample.mask, rollout, group, sample.original))
    sizes = [len(unit) for _, unit in units]
    where = bytes(byte for byte, _ in units)
    if space.split_groups and space.group_size:
        # By itself each, so that a group is split.
        where, sizes = where * space.group_size, [1] * len(made)
    levels = [sample.level for _, unit in units for sample in unit]
    return Drawn(Step(tuple(made)), units_of(sizes), where, levels)


def build(
    draw: st.DrawFn, size: Size, units: Sequence[DrawnUnit], space: Space, most: int
) -> tuple[Case, ...]:
    """Return a case of this size out of its units, and others of its step under other layouts.

    ``most``: different cases at most; there is one only where the space is padded or shuffled,
    which change the step together with its layout.
    """
    # A shuffled step shrinks to one without fan-out while its lengths still differ.
    fans_out = space.fan_out and not (space.shuffled and not flag(draw))
    drawn = build_step(units, replace(space, fan_out=fans_out))
    step, layout = drawn.step, partition_samples(size, drawn.units, drawn.where, space)
    if space.blank_a_unit:
        step = _fully_masked(step, pick(draw, _parts(step, layout)))
    if not space.empty_steps and step.num_unmasked == 0:
        first, *others = step.samples
        full = replace(first, loss_mask=b"\1" * first.response_length, original_mask=None)
        step = Step((full, *others))
    if space.needs_hole and step.num_unmasked == step.num_response_tokens:
        step = _with_hole(step)
    if space.padded:
        padding = Padding(pick(draw, (0, 1, 2)), flag(draw), space.dummies and flag(draw))
        step, layout = padded(step, layout, padding)
    if space.shuffled:
        step, layout = permuted(draw, step, layout, space)
    if space.ids:
        step = named(step, pick(draw, (_row, *NAMINGS.values())))
    losses = _losses(step, drawn.levels, slope=pick(draw, (0, 1, 2, 3)))
    case = Case(step, layout, losses, pick(draw, space.dtypes))
    if space.padded or space.shuffled:
        return (case,)
    layouts = {layout: None}
    for _ in range(most - 1):
        other = pick(draw, fitting(space, len(drawn.units)))
        where = draw(of_size(len(drawn.units)))
        layouts[partition_samples(other, drawn.units, where, space)] = None
    return tuple(map(case.with_layout, layouts))


def _row(i: int, n: int) -> int:
    return i


def _losses(step: Step, levels: Sequence[int], slope: int) -> tuple[float, ...]:
    """One level a sample on the dyadic grid (0 for dummies), and one slope along all responses."""
    levels = [*levels, *[0] * (len(step.samples) - len(levels))]
    return tuple(
        (level + slope * t) / GRID
        for sample, level in zip(step.samples, levels, strict=True)
        for t in range(sample.response_length)
    )


def _parts(step: Step, layout: Layout) -> list[tuple[int, ...]]:
    """Everything that can be fully masked at once, as sample indices, smallest first."""
    parts: list[tuple[int, ...]] = [(i,) for i in range(len(step.samples))]
    parts += step.rollouts.values()
    parts += step.groups.values()
    parts += [cell for _, _, cell in layout.cells()]
    parts += [tuple(i for cell in rank for i in cell) for rank in layout.micro_batches]
    parts.append(tuple(range(len(step.samples))))
    return sorted(set(parts), key=lambda part: (len(part), part))


def _fully_masked(step: Step, part: tuple[int, ...]) -> Step:
    samples = list(step.samples)
    for i in part:
        samples[i] = replace(samples[i], loss_mask=bytes(samples[i].response_length))
    return Step(tuple(samples))


def _with_hole(step: Step) -> Step:
    """Mask the first token of the last sample and give it one more token to keep its count."""
    *others, last = step.samples
    original = None if last.original_mask is None else b"\0" + last.original_mask
    longer = replace(last, loss_mask=b"\0" + last.loss_mask, original_mask=original)
    return Step((*others, longer))
