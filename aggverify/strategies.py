"""Hypothesis strategies for steps and cases. They draw plain data, in the parent process only.

Lengths and one value per sample are drawn, not elements: it finds rare imbalance more often than
lists of booleans, ten times faster, and shrinks to a handful of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from hypothesis import strategies as st

from aggverify.case import Case
from aggverify.layouts import CpKind, Layout
from aggverify.padding import Padding, padded
from aggverify.rearranged import by_groups, renamed
from oracles import Sample, Step
from oracles.coincidence import tells_apart

GRID = 256
"""Losses are multiples of 1/GRID: undivided sums of them are exact in any order."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a check wants to see generated. Every field narrows; nothing is filtered afterwards."""

    max_dp: int = 1
    max_cp: int = 1
    max_microbatches: int = 1
    min_world: int = 1
    max_world: int = 8
    cp_kinds: tuple[CpKind, ...] = ("zigzag",)
    min_units: int = 1
    """Smallest product of the sizes above that is generated (2 leaves the trivial layout out)."""
    max_extra_samples: int = 4
    max_length: int = 12
    lengths: tuple[int, ...] = ()
    """Response lengths to choose from instead, all unmasked."""
    fan_out: bool = False
    empty_samples: bool = True
    uniform: bool = False
    """Micro-batches of one size, filled in index order (SkyRL's driver)."""
    group_size: int | None = None
    """Prompt groups of exactly this many rollouts, each whole in one micro-batch."""
    whole_groups: bool = False
    """Every prompt group, of any size, whole in one micro-batch."""
    split_groups: bool = False
    """The first prompt group in more than one micro-batch or rank."""
    dtypes: tuple[str, ...] = ("float64",)
    blank_a_unit: bool = False
    """Fully mask one sample, rollout, group, micro-batch, rank, or the whole step."""
    needs_hole: bool = False
    """At least one response token is masked."""
    rejects: bool = False
    """Some unmasked tokens are rejected after the fact: denominators have an original mask."""
    padded: bool = False
    """Masked tokens behind responses, rows of one width."""
    dummies: bool = False
    """With ``padded``: also a fully masked copy of each micro-batch's first sample."""
    shuffled: bool = False
    """Samples, ids, micro-batches and ranks in any order; whole prompt groups where rows are dealt
    in order or groups have one size."""


@lru_cache(maxsize=256)
def sizes(space: Space) -> tuple[tuple[int, int, int, CpKind], ...]:
    """Every (dp, cp, micro-batches, CP kind) of the space, smallest world first, so that shrinking
    goes there."""
    found: list[tuple[int, int, int, CpKind]] = [
        (d, c, k, kind)
        for d in range(1, space.max_dp + 1)
        for c in range(1, space.max_cp + 1)
        for k in range(1, space.max_microbatches + 1)
        for kind in (space.cp_kinds if c > 1 else ("zigzag",))
        if space.min_world <= d * c <= space.max_world and d * c in (1, 2, 3, 4, 6, 8)
        if d * c * k >= space.min_units and (d * k > 1 or not space.split_groups)
    ]
    return tuple(sorted(found, key=lambda s: (s[0] * s[1] * s[2], s[:3], s[3] != "zigzag", s[3])))


# Strategy objects are built once: building them costs more than drawing from them.
_integers = lru_cache(maxsize=1024)(st.integers)


_sampled = lru_cache(maxsize=256)(st.sampled_from)


@lru_cache(maxsize=64)
def _bytes(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


@lru_cache(maxsize=64)
def _mostly_short(longest: int) -> st.SearchStrategy[int]:
    """Half of the time 1 to 3, otherwise up to ``longest``; one draw, shrinks to 1."""
    short = tuple(range(1, min(3, longest) + 1))
    return st.sampled_from(tuple(sorted(short * (1 + longest // 3) + tuple(range(1, longest + 1)))))


@lru_cache(maxsize=64)
def cases(space: Space) -> st.SearchStrategy[Case]:
    """Cases of a space: ragged lengths, holes, fully masked samples, straddling groups, fan-out."""
    return st.composite(_case)(space)


def _case(draw: st.DrawFn, space: Space) -> Case:
    dp, cp, k, kind = draw(_sampled(sizes(space)))
    cells, size = dp * k, space.group_size or 1
    if space.uniform:
        units = cells * draw(_integers(1, 1 + space.max_extra_samples // 2))
    elif space.shuffled:
        # Independent of the layout: it shrinks while the samples that show the fault stay.
        units = max(cells, draw(_integers(1, 2 + space.max_extra_samples // size)))
    else:
        units = cells + draw(_integers(0, space.max_extra_samples // size))
    if space.whole_groups:
        sizes_ = [draw(_mostly_short(3)) for _ in range(units)]
    else:
        sizes_ = [size] * units
    step = _step(draw, sizes_, space)
    dealt = _spread(_deal(draw, units, dp, k, space.uniform), sizes_)
    layout = Layout(dealt, cp, kind)
    if space.blank_a_unit:
        units = _units(step, layout)
        step = _blanked(step, units[draw(_integers(0, len(units) - 1))])
    if space.needs_hole and step.num_unmasked == step.num_response_tokens:
        step = _with_hole(step)
    if space.padded:
        dummy = space.dummies and draw(_integers(0, 1)) == 1
        padding = Padding(draw(_integers(0, 2)), draw(_integers(0, 1)) == 1, dummy)
        step, layout = padded(step, layout, padding)
    if space.shuffled:
        step, layout = _shuffled(draw, step, layout, space)
    return Case(step, layout, _losses(draw, step), draw(_sampled(space.dtypes)))


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


def _shuffled(draw: st.DrawFn, step: Step, layout: Layout, space: Space) -> tuple[Step, Layout]:
    """A few drawn switches rather than permutations: they shrink whatever the number of samples."""
    names = _turned(draw, step.num_groups), _turned(draw, step.num_rollouts)
    if space.uniform or space.group_size is not None:
        order = by_groups(step, _turned(draw, step.num_groups))
    elif space.whole_groups:
        order = list(range(len(step.samples)))
    else:
        stride = draw(_integers(1, 3))
        order = sorted(_turned(draw, len(step.samples)), key=lambda i: i % stride)
    step = renamed(Step(tuple(step.samples[i] for i in order)), *names)
    if not space.uniform:
        turned = space.whole_groups and draw(_integers(0, 1)) == 1
        ranks = [
            [rank[k][:: -1 if turned else 1] for k in _turned(draw, len(rank))]
            for rank in layout.micro_batches
        ]
        cells = tuple(tuple(ranks[d]) for d in _turned(draw, len(ranks)))
        layout = replace(layout, micro_batches=cells)
    return step, layout


def _turned(draw: st.DrawFn, count: int) -> list[int]:
    """The numbers below ``count``, forwards or backwards."""
    return list(range(count))[:: -1 if draw(_integers(0, 1)) else 1]


def _with_hole(step: Step) -> Step:
    """Mask the first token of the last sample and give it one more token to keep its count."""
    *rest, last = step.samples
    original = None if last.original_mask is None else b"\0" + last.original_mask
    longer = replace(last, loss_mask=b"\0" + last.loss_mask, original_mask=original)
    return Step((*rest, longer))


def _deal(
    draw: st.DrawFn, count: int, dp: int, k: int, uniform: bool
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Samples dealt to dp*k cells, none empty: the first ones in turn, the rest anywhere."""
    cells: list[list[int]] = [[] for _ in range(dp * k)]
    if uniform:
        size = count // len(cells)
        cells = [list(range(i * size, (i + 1) * size)) for i in range(len(cells))]
    else:
        for i in range(count):
            cells[i if i < len(cells) else draw(st.integers(0, len(cells) - 1))].append(i)
    return tuple(tuple(tuple(cells[d * k + j]) for j in range(k)) for d in range(dp))


def _spread(
    dealt: tuple[tuple[tuple[int, ...], ...], ...], sizes: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Replace each dealt unit by its consecutive samples."""
    starts = list(accumulate(sizes, initial=0))
    return tuple(
        tuple(tuple(i for u in cell for i in range(starts[u], starts[u + 1])) for cell in rank)
        for rank in dealt
    )


def steps(count: int | None = None, space: Space = Space(fan_out=True)) -> st.SearchStrategy[Step]:
    """Steps of ``count`` samples (1 to 6 when None); prompts of at least one token."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Step:
        return _step(draw, [1] * (draw(_integers(1, 6)) if count is None else count), space)

    return drawn()


def _step(draw: st.DrawFn, units: Sequence[int], space: Space) -> Step:
    """``units``: samples of each unit that is dealt to one micro-batch, mostly 1."""
    starts = set(accumulate(units, initial=0))
    whole = space.whole_groups or space.group_size is not None
    fan_out = space.fan_out
    if fan_out and space.shuffled:
        fan_out = draw(_integers(0, 1)) == 1  # goes first, while lengths still differ
    relation_to_last = _integers(0, 2 if fan_out else 1)
    samples: list[Sample] = []
    group = rollout = 0
    for i in range(sum(units)):
        # 0: a new prompt, 1: another rollout of the same, 2: another sample of the same rollout.
        relation = draw(relation_to_last) if i and not space.group_size else 0
        if whole:
            relation = 0 if i in starts else max(relation, 1)
        elif space.split_groups and i == 1:
            relation = 1  # the first two samples are dealt to different micro-batches
        group += relation == 0 and i > 0
        rollout += relation < 2 and i > 0
        samples.append(_sample(draw, rollout, group, space))
    return Step(tuple(samples))


def _sample(draw: st.DrawFn, rollout: int, group: int, space: Space) -> Sample:
    if space.lengths:
        return Sample(1, b"\1" * draw(_sampled(space.lengths)), rollout, group)
    length = draw(_mostly_short(space.max_length))
    prompt = draw(_mostly_short(3 * space.max_length))
    full = (1 << length) - 1
    # A bit set of masked tokens; the upper half of the range means none.
    holes = draw(_integers(0, 2 * full + 1))
    if holes > full:
        holes = 0
    if holes == full and not space.empty_samples:
        holes = full >> 1
    counted = full ^ holes
    if not space.rejects:
        return Sample(prompt, _bits(counted, length), rollout, group)
    rejected = counted & draw(_integers(0, full if length > 1 else 0))
    mask = _bits(counted ^ rejected, length)
    return Sample(prompt, mask, rollout, group, _bits(counted, length) if rejected else None)


def _bits(mask: int, length: int) -> bytes:
    return f"{mask:0{length}b}".encode().translate(_BITS)


_BITS = bytes.maketrans(b"01", b"\0\1")


def losses(step: Step) -> st.SearchStrategy[tuple[float, ...]]:
    """One value per sample on the dyadic grid, and one slope along all responses."""
    return st.composite(_losses)(step)


def _losses(draw: st.DrawFn, step: Step) -> tuple[float, ...]:
    out: list[float] = []
    slope = draw(_integers(0, 3))
    # All in one draw, two bytes each: what a draw costs hardly depends on what is drawn.
    drawn = draw(_bytes(2 * len(step.samples)))
    for n, sample in enumerate(step.samples):
        folded = (drawn[2 * n] & 3) << 8 | drawn[2 * n + 1]
        base = folded >> 1 if folded % 2 == 0 else -(folded + 1 >> 1)
        out += [(base + slope * t) / GRID for t in range(sample.response_length)]
    return tuple(out)


def telling_apart(modes: Iterable[str]) -> st.SearchStrategy[Step]:
    """Steps on which these modes have pairwise different weights (semantics.md, "Where the modes
    coincide")."""
    names = tuple(modes)
    return (
        steps(space=Space(empty_samples=False))
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
