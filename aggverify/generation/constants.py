"""Steps on both sides of the constants that a reducer's code names, and all that are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from aggverify.generation.shapes import FAMILIES, Builder, holed, named, short, turns
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.reordering import renamed

MOST_TOKENS, MOST_SAMPLES, MOST_MICRO_BATCHES = 66_000, 260, 130
"""Of a case around a constant, that is: not much more than any other takes."""
MOST_TURNS = 600
"""Of a mask around a constant."""
LONGEST_SPREAD = 17_000
"""Tokens of a response that is also run on several ranks."""


def around(space: Space, constants: Sequence[float]) -> Iterator[Case | None]:
    """Cases on both sides of the constants of a reducer's code, whatever they may be compared with.

    The constants in turn for each quantity: so each has its share where not all cases are run.
    """
    whole = [int(c) for c in constants if c == int(c) and c >= 2]
    parts = [c for c in constants if 0 < c < 1]
    build = Builder(space)
    for recipe in _RECIPES:
        for c in whole:
            yield from recipe(build, c)
        if recipe is _just_longer:
            for part in parts:
                yield from _dense(build, part)


Recipe = Callable[[Builder, int], Iterator[Case | None]]


def _lengths(build: Builder, length: int, *sizes: tuple[int, int, int]) -> Iterator[Case | None]:
    if length <= MOST_TOKENS:
        for size in sizes:
            if size == (1, 1, 1) or length <= LONGEST_SPREAD:
                yield build.case((holed(length), b"\1\1\1"), size)


def _just_longer(build: Builder, c: int) -> Iterator[Case | None]:
    yield from _lengths(build, c + 1, (1, 1, 1), (1, 2, 1))


def _longer_shards(build: Builder, c: int) -> Iterator[Case | None]:
    yield from _lengths(build, 2 * c + 2, (1, 2, 1))


def _longer_spread(build: Builder, c: int) -> Iterator[Case | None]:
    yield from _lengths(build, c + 1, (2, 1, 1), (1, 1, 2))


def _as_long(build: Builder, c: int) -> Iterator[Case | None]:
    for length in (c, 2 * c):
        if length <= LONGEST_SPREAD:
            yield build.case((b"\1" * length, b"\1\1\1"), (1, 1, 1))
            yield build.case((holed(length), b"\1\1\1"), (1, 2, 1))


def _shorter(build: Builder, c: int) -> Iterator[Case | None]:
    yield from _lengths(build, c - 1, (1, 1, 1), (1, 2, 1))


def _more_samples(build: Builder, c: int) -> Iterator[Case | None]:
    if c < MOST_SAMPLES // 2:
        for size in ((1, 1, 1), (2, 1, 1), (1, 1, 2)):
            yield build.case([holed(6), *short(c, 1)], size)


def _as_many_samples(build: Builder, c: int) -> Iterator[Case | None]:
    for count in (c, 2 * c):
        if count < MOST_SAMPLES:
            yield build.case([holed(6), *short(count - 1, 1)])


def _more_micro_batches(build: Builder, c: int) -> Iterator[Case | None]:
    if c < MOST_MICRO_BATCHES:
        for masks, size in (((b"\1\0\1",), (1, 1, c + 1)), ((b"\1\1\1",), (1, 1, c))):
            yield build.case(masks, size, ragged=True) or build.case(masks, size)


def _more_groups(build: Builder, c: int) -> Iterator[Case | None]:
    if c < MOST_SAMPLES:
        half = c // 2 + 1
        yield build.case([holed(5), *short(half, 1)], (2, 1, 1), whole_prompts=False)


def _more_tokens(build: Builder, c: int) -> Iterator[Case | None]:
    """No response that long, but a micro-batch, or a step."""
    if 8 <= c <= MOST_TOKENS:
        yield build.case((holed(c // 2 + 2), holed(c - c // 2 + 3)))
    if 8 <= c <= LONGEST_SPREAD:
        yield build.case((holed(c // 3 + 4),), (2, 1, 2), all_cells=True)


def _longer_prompts(build: Builder, c: int) -> Iterator[Case | None]:
    if c <= MOST_TOKENS:
        yield build.case((holed(7), b"\1\1"), prompt=c + 1)
        yield build.case((holed(7), b"\1\1"), (1, 2, 1), prompt=c + 1)
        yield build.case((holed(7), b"\1\1"), prompt=c)


def _ids_there(build: Builder, c: int) -> Iterator[Case | None]:
    case = build.case((b"\1\1\1", b"\1", holed(5), b"\1\1"), (1, 1, 2))
    if c < 2**62:
        yield case and replace(case, step=named(case.step, lambda i, n: c - 1 + i))


def _more_turns(build: Builder, c: int) -> Iterator[Case | None]:
    if c <= MOST_TURNS:
        yield build.case((turns(c + 1), b"\1\1"))
        yield build.case((turns(2 * c + 2), b"\1\1"), (1, 2, 1))


def _ids_that_meet(build: Builder, c: int) -> Iterator[Case | None]:
    """Ids with the same place in a table that has so many."""
    case = build.case((b"\1\1\1", b"\1", holed(5), b"\1\1"), (1, 1, 2))
    if c < 2**40:
        yield case and replace(case, step=named(case.step, lambda i, n: c * i))


def _ids_packed(build: Builder, c: int) -> Iterator[Case | None]:
    """Pairs that are one number where a prompt group has room for so many rollouts."""
    case = build.case((b"\1\1\1", b"\1", holed(5), b"\1\1"))
    if case is None or c >= 2**32:
        return
    step = case.step
    group = {s.rollout: s.group for s in step.samples}
    firsts = {g: r for r, g in reversed(group.items())}
    last = max(firsts)
    rollouts = [c * (last - g) + r - firsts[g] for r, g in group.items()]
    if len(set(rollouts)) == len(rollouts):
        yield replace(case, step=renamed(step, list(firsts)[::-1], rollouts))


def _losses_there(build: Builder, c: int) -> Iterator[Case | None]:
    case = build.case((holed(6), b"\1\1"))
    if case is not None and c < 2**40:
        sizes = (2.0 * c, -2.0 * c, c + 1.0, -(c + 1.0), 1.0)
        yield case.with_losses(tuple(sizes[t % 5] for t in range(len(case.losses))))


def _dense(build: Builder, part: float) -> Iterator[Case | None]:
    """Of 200 tokens the share that is unmasked, and one token more and less."""
    for unmasked in sorted({min(max(round(200 * part) + more, 1), 199) for more in (-1, 0, 1)}):
        mask = bytearray(b"\1" * unmasked + b"\0" * (200 - unmasked))
        mask[0], mask[-1] = mask[-1], mask[0]
        for size in ((1, 1, 1), (1, 2, 1), (2, 1, 1)):
            yield build.case((bytes(mask),), size, all_cells=True)


_RECIPES: Sequence[Recipe] = (
    _just_longer,
    _longer_shards,
    _more_samples,
    _more_micro_batches,
    _longer_prompts,
    _more_turns,
    _longer_spread,
    _more_groups,
    _as_long,
    _more_tokens,
    _ids_there,
    _ids_that_meet,
    _ids_packed,
    _losses_there,
    _as_many_samples,
    _shorter,
)

CONSTANTS = "constants"


def shaped(space: Space, constants: Sequence[float], most: Mapping[str, int]) -> tuple[Case, ...]:
    """The cases of a space, of each shape so many at most; the most usual mistakes first."""
    families = {CONSTANTS: around(space, constants)}
    families |= {name: family(space) for name, family in FAMILIES.items()}
    chosen = (
        islice((case for case in cases if case is not None), most[name])
        for name, cases in families.items()
    )
    return tuple(dict.fromkeys(chain.from_iterable(chosen)))
