"""Steps that reducers branch on: long and sharded, in 16 bits, many, sparse, around a constant.

Drawn cases are small, and a branch taken from 512 tokens on is never seen by them. These are listed
instead: a few of each shape, in an order in which the first ones are the most informative, so that
a profile may take as many as it has time for. Its space determines which of them a reducer can be
given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product

from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.reordering import renamed

LONG = (257, 33, 1023, 64, 2048, 97, 513, 127, 192, 1025, 63, 129, 65, 96, 193, 128)
"""On both sides of powers of two and of their multiples."""
BEYOND_INT16 = 2**15 + 3000
"""Response tokens; without those that ``holed`` masks they are still more than int16 counts."""

Ids = Callable[[int, int], int]
NAMINGS: Mapping[str, Ids] = {
    "reversed": lambda i, n: n - 1 - i,
    "multiples of their number": lambda i, n: n * i,
    "2^24 and more": lambda i, n: 2**24 + i,
    "2^31 and more": lambda i, n: 2**31 + 7 * i,
    "2^62 and more": lambda i, n: 2**62 + i,
    "even": lambda i, n: 2 * i,
    "sparse": lambda i, n: 3 + i * i * 1009,
    "from 100 on": lambda i, n: 100 + i,
}
"""The i-th of n ids, of rollouts and of prompt groups."""


def named(step: Step, ids: Ids) -> Step:
    """Return the step with its rollouts and prompt groups called so."""
    groups, rollouts = step.num_groups, step.num_rollouts
    return renamed(
        step, [ids(i, groups) for i in range(groups)], [ids(i, rollouts) for i in range(rollouts)]
    )


def holed(length: int) -> bytes:
    """Return a mask with its first token and a block in the middle masked.

    Nothing is masked in a response of one or two tokens.
    """
    mask = bytearray(b"\1" * length)
    if length > 2:
        mask[0] = 0
        for t in range(length // 3, length // 3 + max(length // 16, 1)):
            mask[t] = 0
        mask[-1] = 1
    return bytes(mask)


def sparse(length: int, unmasked: int) -> bytes:
    """So many unmasked tokens, spread over the response."""
    mask = bytearray(length)
    for n in range(unmasked):
        mask[(2 * n + 1) * length // (2 * unmasked)] = 1
    return bytes(mask)


def turns(count: int) -> bytes:
    """Return a mask of so many runs of unmasked tokens.

    An agent's turns leave them so between answers of its tools.
    """
    return b"".join(b"\1" * (1 + n % 2) + b"\0" * (1 + n % 3) for n in range(count))


_SHORT = (b"\1\1", b"\1\1\1\1\1", b"\1", b"\1\0\1")


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes the cases of a space out of what one micro-batch holds."""

    space: Space

    def case(
        self,
        masks: Sequence[bytes],
        size: tuple[int, int, int] = (1, 1, 1),
        *,
        kind: CpKind | None = None,
        dtype: str = "float64",
        prompt: int = 3,
        all_cells: bool = False,
        fan_out: bool = False,
        whole_prompts: bool = True,
        ragged: bool = False,
    ) -> Case | None:
        """On so many data-parallel ranks, context-parallel ranks and micro-batches.

        The first micro-batch holds responses with these masks, the others as many short ones, or
        with ``all_cells`` the same; every third has one sample more where they are ``ragged``.

        Every second response shares the prompt of the one before, with ``fan_out`` its rollout too;
        without ``whole_prompts`` each rollout has its own. None where the space has no such case.
        """
        dp, cp, k = size
        if self.space.rows:  # every micro-batch has so many samples
            units = self.space.rows // (self.space.group_size or 1)
            masks = [*masks, *short(units - len(masks), 2)]
        samples: list[Sample] = []
        cells: list[tuple[int, ...]] = []
        for n in range(dp * k):
            first = len(samples)
            count = len(masks) + (ragged and n % 3 == 1)
            for i, mask in enumerate(masks if n == 0 or all_cells else short(count, n)):
                self._add(samples, mask, prompt if n + i == 0 else 1 + i % 5, i % 2 == 1, fan_out)
            cells.append(tuple(range(first, len(samples))))
        ranks = tuple(tuple(cells[d * k : (d + 1) * k]) for d in range(dp))
        step = Step(tuple(samples))
        if not whole_prompts:
            step = Step(tuple(replace(s, group=s.rollout) for s in samples))
        kinds = self.space.cp_kinds or ("zigzag",)
        layout = Layout(ranks, cp, "zigzag" if cp == 1 else kind or kinds[0])
        made = Case(step, layout, levels(step), dtype)
        return made if made in self.space else None

    def _add(
        self, samples: list[Sample], mask: bytes, prompt: int, related: bool, fan_out: bool
    ) -> None:
        """One sample, or a whole prompt group of it where groups have one size."""
        rollout = samples[-1].rollout + 1 if samples else 0
        group = samples[-1].group + 1 if samples else 0
        if self.space.group_size is not None:
            others = short(self.space.group_size - 1, len(samples))
            for n, own in enumerate((mask, *others)):
                samples.append(Sample(prompt, own, rollout + n, group))
        elif related and samples:
            same = fan_out and self.space.fan_out
            samples.append(Sample(prompt, mask, rollout - same, group - 1))
        else:
            samples.append(Sample(prompt, mask, rollout, group))


def short(count: int, turn: int) -> list[bytes]:
    """Masks of so many short responses, in an order that differs by the turn."""
    return [_SHORT[(i + turn) % len(_SHORT)] for i in range(count)]


def levels(step: Step) -> tuple[float, ...]:
    """One loss a sample, exact in every dtype: of long responses only the weights are judged."""
    return tuple(
        chain.from_iterable(
            [(3 * (i % 8) + 1) / 16] * sample.response_length
            for i, sample in enumerate(step.samples)
        )
    )


_SPREADS = ((1, 2, 1), (2, 1, 1), (1, 1, 2), (1, 4, 1), (2, 2, 2))
"""Data parallel, context parallel, micro-batches."""


_EVERYWHERE = 5
"""Of ``LONG``, the lengths that are first met on every layout; the others begin with one each."""


def long_and_sharded(space: Space) -> Iterator[Case | None]:
    """Long responses with holes, one next to a short one, on five layouts each."""
    build, kinds = Builder(space).case, space.cp_kinds or ("zigzag",)
    every = list(product(range(len(LONG)), range(len(_SPREADS))))
    first = [(n, m) for n, m in every if n < _EVERYWHERE or m == n % len(_SPREADS)]
    for n, m in dict.fromkeys((*first, *every)):
        kind, whole = kinds[(n + m) % len(kinds)], (n + m) % 4 == 3
        mask = b"\1" * LONG[n] if whole else holed(LONG[n])
        yield build((mask, b"\1\1\1"), _SPREADS[m], kind=kind, all_cells=m == 4)
        if (n, m) == (0, len(_SPREADS) - 1):
            yield build((holed(BEYOND_INT16), b"\1\1\1"))


def low_precision(space: Space) -> Iterator[Case | None]:
    """Losses in 16 and in 32 bits on every kind of layout, ragged."""
    build, kinds = Builder(space).case, space.cp_kinds or ("zigzag",)
    masks = (holed(7), b"\1\1", holed(12), b"\1")
    ends = ((1, 2, 1, kind) for kind in kinds)
    sizes = ((2, 1, 1, None), *ends, (1, 1, 3, None), (2, 2, 2, None), (4, 1, 1, None))
    for dtype in ("bfloat16", "float16", "float32"):
        for dp, cp, k, kind in sizes:
            yield build(masks, (dp, cp, k), kind=kind, dtype=dtype, fan_out=True)
    for dtype in ("bfloat16", "float16"):
        for size in _SPREADS[:3]:
            yield build((holed(300), b"\1\1"), size, dtype=dtype, all_cells=True)
    for dtype in ("bfloat16", "float16"):
        # A prompt group that is masked whole; counts that are added up one by one.
        for size in _SPREADS[:1] + _SPREADS[2:3] + ((1, 1, 1),):
            yield build((holed(7), bytes(4), b"\1\1"), size, dtype=dtype, whole_prompts=False)
        for length in (300, 2200):
            yield build((holed(length), *[b"\1"] * 63), dtype=dtype, whole_prompts=False)
    for dtype, length in (("bfloat16", 601), ("float16", 4201)):
        # One token is masked: the share that is not rounds to 1 in so few bits.
        yield build((b"\1" * (length // 2) + b"\0" + b"\1" * (length // 2), b"\1\1"), dtype=dtype)
    # A count times the number of rollouts is beyond the largest number of float16.
    yield build((holed(2049), *short(39, 1)), dtype="float16")


def many(space: Space) -> Iterator[Case | None]:
    """Micro-batches up to 32 a rank, samples up to 64 a micro-batch, some hundred in a step."""
    build = Builder(space).case
    for k in (5, 8, 16, 32):
        for masks, size in (((b"\1\1\1",), (1, 1, k)), ((b"\1\0\1",), (2, 1, k))):
            yield build(masks, size, ragged=True) or build(masks, size)
    counts, sizes = (9, 17, 64, 33), ((1, 1, 1), (2, 1, 1), (1, 1, 2), (1, 2, 1))
    of_each = [zip(counts, sizes[n:] + sizes[:n], strict=True) for n in range(len(sizes))]
    for n, (count, size) in enumerate(chain.from_iterable(of_each)):
        yield build([*short(count - 1, 1), holed(6)], size, fan_out=count == 17)
        if n == len(counts) - 1:  # each count has been met
            yield build(short(16, 0), (4, 1, 4), whole_prompts=False)
            yield build(short(8, 0), (8, 1, 4))


def ids(space: Space) -> Iterator[Case | None]:
    """Two rollouts a prompt, called by numbers that are no row numbers."""
    plain = [
        Builder(space).case((b"\1\1\1", b"\1", holed(5), b"\1\1"), size, fan_out=fan_out)
        for size, fan_out in (((1, 1, 1), False), ((2, 1, 2), False), ((1, 1, 2), True))
    ]
    for ids in NAMINGS.values():
        for case in plain:
            yield case and replace(case, step=named(case.step, ids))


def crowded(space: Space) -> Case | None:
    """Return ten prompts whose ids share their low bits: few tables look for so many places."""
    case = Builder(space).case((b"\1\1\1", b"\1", holed(5), b"\1\1") * 5)
    return case and replace(case, step=named(case.step, lambda i, n: 1024 * i))


def degenerate(space: Space) -> Iterator[Case | None]:
    """Equal lengths without a hole, several samples a rollout; a few unmasked tokens of many.

    Many turns; long ones that are nearly equal.
    """
    build, sizes = Builder(space).case, ((1, 1, 1), *_SPREADS[:3])
    for count, length in ((8, 4), (2, 16), (6, 1)):
        for size in sizes:
            yield build((b"\1" * length,) * count, size, fan_out=True, all_cells=True)
    for length, unmasked in ((30, 2), (70, 3), (64, 1)):
        for size in sizes:
            yield build((sparse(length, unmasked), b"\1\1\1"), size, all_cells=length == 70)
    for size in sizes:
        yield build((bytes(40), holed(40)), size)
        yield build((turns(40), turns(11)), size)
    for size in sizes[:3]:
        yield build([b"\1" * length for length in (200, 201, 199, 200)], size, all_cells=True)
    for count, mask in ((4, b"\1"), (8, b"\1\1\1")):
        yield _one_rollout(space, count, mask)


_MANY_TOKENS = (Sample(1, b"\1" * 4500, 0, 0), Sample(1, b"\1", 1, 1))
_MANY_SAMPLES = tuple(Sample(1, b"\1", i, i // 2) for i in range(640))


@cache
def sum_of_many(*, samples: bool = False) -> Case:
    """More tokens, or samples of a micro-batch, than bfloat16 adds up one by one; every loss is 1.

    Not of float16, in which a right sum may be too large or a right weight too small.
    """
    members = _MANY_SAMPLES if samples else _MANY_TOKENS
    step = Step(members)
    losses = (1.0,) * step.num_response_tokens
    return Case(step, Layout.trivial(len(members)), losses, "bfloat16")


def _one_rollout(space: Space, count: int, mask: bytes) -> Case | None:
    """Return one rollout of so many equal samples, as micro-batches filled up with copies have."""
    step = Step((Sample(1, mask, 0, 0),) * count)
    made = Case(step, Layout.trivial(count), levels(step))
    return made if made in space else None


LONG_STEP = Step(tuple(Sample(1, b"\1" * length, i, i) for i, length in enumerate((257, 2051, 5))))
"""Counts, and a number of units, that numbers of 16 bits cannot take."""
_HOLED = Step((Sample(1, b"\1" * 301 + b"\0" + b"\1" * 300, 0, 0), Sample(1, b"\1", 1, 1)))
LONG_WITH_A_HOLE = Case(_HOLED, Layout.trivial(2), levels(_HOLED))
"""Its unmasked tokens are fewer than its tokens, and a number that bfloat16 does not have."""
_FEW_OF_MANY = Step((Sample(1, b"\1\0\0", 0, 0), Sample(2, b"\0\0\0\1", 1, 1)))


def few_and_many() -> tuple[Case, ...]:
    """Return steps of few unmasked tokens, of very many, and of many rollouts, on one rank."""
    steps = (_FEW_OF_MANY, LONG_STEP, Step(_MANY_SAMPLES))
    return tuple(Case(s, Layout.trivial(len(s.samples)), levels(s)) for s in steps)


FAMILIES: Mapping[str, Callable[[Space], Iterator[Case | None]]] = {
    "long": long_and_sharded,
    "low-precision": low_precision,
    "many": many,
    "ids": ids,
    "degenerate": degenerate,
}
