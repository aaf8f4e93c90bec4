"""A case out of byte strings: one for each unit dealt to a micro-batch, and one for the rest.

Of a sample its length, its mask as one number, and its first loss are read. Rare imbalance is found
more often so than with masks drawn token by token. Every byte of 0 is the simplest choice, and a
unit left out leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aggverify.generation.choices import ChoiceSource, mostly_short
from aggverify.generation.partition import Unit, partition_samples, permuted, units_of
from aggverify.generation.shapes import NAMINGS, named
from aggverify.generation.space import Size, Space, fitting
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.padding import Padding, padded

GRID = 256
"""Losses are multiples of 1/GRID: undivided sums of them are exact in any order."""
_LARGEST_GROUP = 3
"""Samples of a unit at most where units are whole prompt groups of any size."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step as drawn, with what its units determine of the rest of a case."""

    step: Step
    units: list[Unit]
    where: bytes
    """One byte a unit: the micro-batch it goes to."""
    levels: list[int]
    """One a sample: its first loss, in multiples of 1/GRID."""


def record_size(space: Space) -> int:
    """Bytes of a unit: its micro-batch, its number of samples, and each of them."""
    return 2 + _samples_of_a_unit(space) * _sample_size(space)


def rest_size(units: int, most: int, space: Space) -> int:
    """Return the bytes for what is of the whole case, and for ``most`` layouts of the units.

    No more than may be read, as each costs time to draw. They are for slope, dtype and naming of
    ids; for padding, orders and what is masked; and for each further layout.
    """
    altered = space.shuffled or space.padded or space.blank_a_unit
    return 2 + space.ids + altered * (14 + units) + (most - 1) * (2 + units)


def build(
    size: Size, records: Sequence[bytes], rest: bytes, space: Space, most: int
) -> tuple[Case, ...]:
    """Return a case of this size out of its units, and others of its step under other layouts.

    ``most``: different cases at most; there is one only where the space is padded or
    shuffled, which change the step together with its layout.
    """
    source = ChoiceSource(rest)
    # A byte by itself, so that fan-out can be shrunk away while lengths still differ.
    if space.shuffled and space.fan_out and not source.flag():
        drawn = build_step(records, replace(space, fan_out=False))
    else:
        drawn = build_step(records, space)
    step, layout = drawn.step, partition_samples(size, drawn.units, drawn.where, space)
    if space.blank_a_unit:
        step = _fully_masked(step, source.pick(_parts(step, layout)))
    if not space.empty_steps and step.num_unmasked == 0:
        first, *others = step.samples
        full = replace(first, loss_mask=b"\1" * first.response_length, original_mask=None)
        step = Step((full, *others))
    if space.needs_hole and step.num_unmasked == step.num_response_tokens:
        step = _with_hole(step)
    if space.padded:
        padding = Padding(source.pick((0, 1, 2)), source.flag(), space.dummies and source.flag())
        step, layout = padded(step, layout, padding)
    if space.shuffled:
        step, layout = permuted(source, step, layout, space)
    if space.ids:
        step = named(step, source.pick((_row, *NAMINGS.values())))
    losses = _losses(step, drawn.levels, slope=source.pick((0, 1, 2, 3)))
    case = Case(step, layout, losses, source.pick(space.dtypes))
    if space.padded or space.shuffled:
        return (case,)
    layouts = {layout: None}
    for _ in range(most - 1):
        other = source.pick(fitting(space, len(drawn.units)))
        layouts[partition_samples(other, drawn.units, source.take(len(drawn.units)), space)] = None
    return tuple(map(case.with_layout, layouts))


def _row(i: int, n: int) -> int:
    return i


def build_step(records: Sequence[bytes], space: Space) -> Drawn:
    """Read a unit out of each byte string, and join them to a step."""
    whole = space.whole_units or space.group_size is not None
    samples: list[Sample] = []
    sizes: list[int] = []
    levels: list[int] = []
    where = bytearray()
    group = rollout = -1
    for record in records:
        source = ChoiceSource(record)
        where += source.take(1)
        count = source.pick(mostly_short(_LARGEST_GROUP))
        if space.uniform and sizes:
            count = sizes[0]  # then equally many units make micro-batches of one size
        sizes.append(space.rows or (count if space.whole_units else space.group_size or 1))
        for n in range(sizes[-1]):
            relation = _relation(source, space)
            if not samples or (whole and n == 0):
                relation = 0
            elif whole:
                relation = 1 if space.group_size else max(relation, 1)
            elif space.split_groups and len(samples) == (space.rows or 1):
                relation = 1  # of one prompt, and dealt to different micro-batches
            group += relation == 0
            rollout += relation < 2
            samples.append(_sample(source, rollout, group, space))
            levels.append(_level(source))
    if space.split_groups and space.group_size:  # by itself each, so that a group is split
        where, sizes = where * space.group_size, [1] * len(samples)
    return Drawn(Step(tuple(samples)), units_of(sizes), bytes(where), levels)


def _relation(source: ChoiceSource, space: Space) -> int:
    """0: a new prompt, 1: another rollout of the same, 2: another sample of the same rollout."""
    return source.pick((0, 1, 2) if space.fan_out else (0, 1))


def _samples_of_a_unit(space: Space) -> int:
    return space.rows or space.group_size or (_LARGEST_GROUP if space.whole_units else 1)


def _sample_size(space: Space) -> int:
    """Bytes of a sample: kinship, length, prompt, masked tokens or none, rejected ones, loss."""
    return 6 + _mask_bytes(space) * (2 if space.rejects else 1)


def _mask_bytes(space: Space) -> int:
    """Bytes that hold one bit a token."""
    return -(-space.max_length // 8)


def _sample(source: ChoiceSource, rollout: int, group: int, space: Space) -> Sample:
    if space.holes:
        return Sample(1 + source.take(1)[0], _holed(source, space), rollout, group)
    if space.lengths:
        return Sample(1, b"\1" * source.pick(space.lengths), rollout, group)
    length = source.pick(mostly_short(space.max_length))
    prompt = source.pick(mostly_short(3 * space.max_length))
    full = (1 << length) - 1
    # Nothing is masked, or each token whose bit is set: a shorter response has the lowest bits.
    masks, drawn = source.flag(), int.from_bytes(source.take(_mask_bytes(space)))
    holes = drawn & full if masks else 0
    if holes == full and not space.empty_samples:
        holes = full >> 1
    counted = full ^ holes
    if not space.rejects:
        return Sample(prompt, _bits(counted, length), rollout, group)
    rejected = int.from_bytes(source.take(_mask_bytes(space))) & (counted if length > 1 else 0)
    mask = _bits(counted ^ rejected, length)
    return Sample(prompt, mask, rollout, group, _bits(counted, length) if rejected else None)


def _holed(source: ChoiceSource, space: Space) -> bytes:
    """Return the mask of a response of one of the lengths, one block of it masked or nothing."""
    mask = bytearray(b"\1" * source.pick(space.lengths))
    if source.flag():
        begin, width = (source.take(1)[0] * len(mask) >> 8 for _ in range(2))
        mask[begin : begin + width] = bytes(len(mask[begin : begin + width]))
    return bytes(mask) if space.empty_samples or any(mask) else b"\1" * len(mask)


def _bits(mask: int, length: int) -> bytes:
    """Return a byte a token, from the lowest bit on: a shorter response keeps its first ones."""
    return f"{mask:0{length}b}"[::-1].encode().translate(_BITS)


_BITS = bytes.maketrans(b"01", b"\0\1")


def _level(source: ChoiceSource) -> int:
    """0, -1, 1, -2, 2 ...: ten bits, small ones first."""
    folded = int.from_bytes(source.take(2)) & 1023
    return folded >> 1 if folded % 2 == 0 else -(folded + 1 >> 1)


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
