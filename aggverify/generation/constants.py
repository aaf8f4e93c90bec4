"""Steps around the constants that a reducer's code names, and the list of all shaped cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, islice, product

from aggverify.generation.shapes import FAMILIES, Builder, holed, named, short, turns
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.reordering import renamed

MOST_TOKENS, MOST_SAMPLES, MOST_MICRO_BATCHES = 66_000, 260, 130
"""Of a case around a constant, so that it takes not much more than any other."""
MOST_TURNS = 600
"""Runs of unmasked tokens; a mask around a constant has twice as many at most."""
LONGEST_SPREAD = 17_000
"""Tokens of a response that is also run on several ranks."""
AT_A_TIME = 6
"""Constants, the nearest to the function first, that every quantity is tried on before the next
ones."""

Side = Callable[[int], int]
SIDES: Sequence[Side] = (lambda c: c + 1, lambda c: c, lambda c: 2 * c, lambda c: c - 1)
"""A threshold in the code is just passed, met, passed by far, and just missed, in this order."""


def around(
    space: Space, constants: Sequence[float], dtypes: Sequence[str] = ()
) -> Iterator[Case | None]:
    """Cases on all sides of the constants of a reducer's code, whatever they may be compared with.

    Some of them also in the dtypes that the code names.

    Every quantity has one side of the constants before any has the next side: so each has its share
    where not all cases are run.
    """
    seen: set[Case] = set()
    for case in _around(Builder(space), constants, [d for d in dtypes if d != "float64"]):
        if case is not None and case not in seen:
            seen.add(case)
            yield case


def _around(
    build: Builder, constants: Sequence[float], dtypes: Sequence[str]
) -> Iterator[Case | None]:
    whole = [int(c) for c in constants if c == int(c) and c >= 2]
    parts = [c for c in constants if 0 < c < 1]
    for c in whole:
        yield from (quantity(build, c + 1) for quantity in (_length, _cp_length))
    for part in parts:
        yield from _dense(build, part)
    for dtype in dtypes:
        yield from _in_dtype(build, dtype, whole)
    blocks = [whole[n : n + AT_A_TIME] for n in range(0, len(whole), AT_A_TIME)]
    for side in SIDES:
        for block in blocks:
            for quantity in _QUANTITIES:
                yield from (quantity(build, side(c)) for c in block)
            for recipe in _NEXT_TO if side is SIDES[0] else ():
                yield from chain.from_iterable(recipe(build, c) for c in block)
    for part in parts:
        yield from _small_losses(build, part)


Quantity = Callable[[Builder, int], Case | None]
"""A case in which something is of that size, if there is one."""
Recipe = Callable[[Builder, int], Iterator[Case | None]]
"""Cases for what else may be compared with a constant."""


def _long(build: Builder, length: int, size: tuple[int, int, int]) -> Case | None:
    most = MOST_TOKENS if size == (1, 1, 1) else LONGEST_SPREAD
    return build.case((holed(length), b"\1\1\1"), size) if length <= most else None


def _length(build: Builder, size: int) -> Case | None:
    return _long(build, size, (1, 1, 1))


def _cp_length(build: Builder, size: int) -> Case | None:
    return _long(build, size, (1, 2, 1))


def _dp_length(build: Builder, size: int) -> Case | None:
    return _long(build, size, (2, 1, 1))


def _length_of_a_micro_batch(build: Builder, size: int) -> Case | None:
    return _long(build, size, (1, 1, 2))


def _shard(build: Builder, size: int) -> Case | None:
    """Return a response whose half, on one of two context-parallel ranks, has that length."""
    return _long(build, 2 * size, (1, 2, 1))


def _unmasked(build: Builder, size: int) -> Case | None:
    """Return a response without a hole."""
    return build.case((b"\1" * size, b"\1\1\1")) if size <= LONGEST_SPREAD else None


def _tokens(build: Builder, size: int) -> Case | None:
    """Return a micro-batch of so many tokens, all unmasked, with no response that long."""
    if not 3 <= size <= MOST_TOKENS:
        return None
    return build.case((b"\1" * (size - size // 3), b"\1" * (size // 3)))


def _samples(build: Builder, size: int) -> Case | None:
    """Return a micro-batch of so many samples; where prompt groups have one size, of whole ones."""
    count = -(-size // (build.space.group_size or 1))
    return build.case([holed(6), *short(count - 1, 1)]) if count <= MOST_SAMPLES else None


def _micro_batches(build: Builder, size: int) -> Case | None:
    if size > MOST_MICRO_BATCHES:
        return None
    masks, sizes = (b"\1\0\1",), (1, 1, size)
    return build.case(masks, sizes, ragged=True) or build.case(masks, sizes)


def _prompt(build: Builder, size: int) -> Case | None:
    return build.case((holed(7), b"\1\1"), prompt=size) if size <= MOST_TOKENS else None


def _groups(build: Builder, size: int) -> Case | None:
    """Return so many prompt groups, on two ranks where that is even: fewer samples a rank."""
    ranks = 2 if size % 2 == 0 and build.space.max_dp > 1 else 1
    if size // ranks > MOST_SAMPLES:
        return None
    masks = [holed(5), *short(size // ranks - 1, 1)]
    return build.case(masks, (ranks, 1, 1), whole_prompts=False)


def _turns(build: Builder, size: int) -> Case | None:
    return build.case((turns(size), b"\1\1")) if size <= 2 * MOST_TURNS else None


def _largest_loss(build: Builder, size: float) -> Case | None:
    if size >= 2**40:
        return None
    case = build.case((holed(6), b"\1\1"))
    sizes = (size, -size, size / 2, size / 8, -size / 4)
    return case and case.with_losses(tuple(sizes[t % 5] for t in range(len(case.losses))))


_QUANTITIES: Sequence[Quantity] = (
    _length,
    _cp_length,
    _samples,
    _micro_batches,
    _prompt,
    _tokens,
    _dp_length,
    _length_of_a_micro_batch,
    _groups,
    _largest_loss,
    _unmasked,
    _shard,
    _turns,
)


def _ids_on_all_sides(build: Builder, c: int) -> Iterator[Case | None]:
    """Yield a case whose ids are all sides of it."""
    case = _ids(build, (1, 1, 2))
    if c < 2**62:
        sides = [side(c) for side in SIDES]
        yield case and replace(
            case, step=named(case.step, lambda i, n: sides[i] if i < len(sides) else 2 * c + i)
        )


def _ids(build: Builder, size: tuple[int, int, int] = (1, 1, 1)) -> Case | None:
    return build.case((b"\1\1\1", b"\1", holed(5), b"\1\1"), size)


def _ids_that_collide(build: Builder, c: int) -> Iterator[Case | None]:
    """Yield ids that are one in a table of so many places.

    Where it is the largest of an integer type, also ids that are one in that type.
    """
    moduli = (c, c + 1) if (c + 1).bit_count() == 1 else (c,)
    for modulus, size in product(moduli, ((1, 1, 2), (1, 1, 1))):
        case = _ids(build, size)
        if c < 2**40:
            yield case and replace(case, step=named(case.step, partial(_times, modulus)))


def _times(modulus: int, i: int, n: int) -> int:
    return modulus * i


def _ids_packed(build: Builder, c: int) -> Iterator[Case | None]:
    """Yield ids for which ``group * c + rollout`` is one number in different prompt groups."""
    case = _ids(build)
    if case is None or c >= 2**32:
        return
    step = case.step
    group = {s.rollout: s.group for s in step.samples}
    firsts = {g: r for r, g in reversed(group.items())}
    last = max(firsts)
    rollouts = [c * (last - g) + r - firsts[g] for r, g in group.items()]
    if len(set(rollouts)) == len(rollouts):
        yield replace(case, step=renamed(step, list(firsts)[::-1], rollouts))


def _many_spread(build: Builder, c: int) -> Iterator[Case | None]:
    """Yield more samples than it, on two ranks or in two micro-batches; more micro-batches."""
    if c < MOST_SAMPLES // 2:
        for size in ((2, 1, 1), (1, 1, 2)):
            yield build.case([holed(6), *short(c, 1)], size)
    if c < MOST_MICRO_BATCHES // 2:
        yield build.case((b"\1\1\1",), (2, 1, c + 1))


def _more_tokens(build: Builder, c: int) -> Iterator[Case | None]:
    """Yield a micro-batch and a step of more tokens than it, with holes, no response that long."""
    if 8 <= c <= LONGEST_SPREAD:
        yield build.case((holed(c // 2 + c // 16 + 4), holed(c - c // 2 + 3)))
        yield build.case((holed(c // 3 + 4),), (2, 1, 2), all_cells=True)


def _prompts_of_shards(build: Builder, c: int) -> Iterator[Case | None]:
    if c < MOST_TOKENS:
        yield build.case((holed(7), b"\1\1"), (1, 2, 1), prompt=c + 1)


_NEXT_TO: Sequence[Recipe] = (
    _ids_on_all_sides,
    _many_spread,
    _ids_that_collide,
    _ids_packed,
    _more_tokens,
    _prompts_of_shards,
)


def _dense(build: Builder, part: float) -> Iterator[Case | None]:
    """Yield 200 tokens of which that share is unmasked, one more, one less, or twice as many."""
    share = round(200 * part)
    counts = {min(max(n, 1), 199) for n in (share - 1, share, share + 1, 2 * share)}
    for unmasked in sorted(counts):
        mask = bytearray(b"\1" * unmasked + b"\0" * (200 - unmasked))
        mask[0], mask[-1] = mask[-1], mask[0]
        for size in ((1, 1, 1), (1, 2, 1), (2, 1, 1)):
            yield build.case((bytes(mask),), size, all_cells=True)


def _small_losses(build: Builder, part: float) -> Iterator[Case | None]:
    """Yield losses next to it and twice it, as dyadic fractions, whose sums are exact."""
    near = round(part * 1024)
    for size in dict.fromkeys((near + 1, near, 2 * near, near - 1)):
        yield _largest_loss(build, size / 1024)


def _in_dtype(build: Builder, dtype: str, whole: Sequence[int]) -> Iterator[Case | None]:
    """Every layout in a dtype that the code names, and what its constants are compared with."""
    for size in ((1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 1, 2), (2, 2, 2)):
        for masks in ((holed(7), b"\1\1", b"\1"), (b"\1\1\1\1", b"\1\1")):
            yield build.case(masks, size, dtype=dtype, all_cells=True)
    for quantity in (_length, _cp_length, _samples, _tokens, _micro_batches):
        for c in whole[:AT_A_TIME]:
            case = quantity(build, c + 1)
            yield case and replace(case, dtype=dtype)


CONSTANTS = "constants"


def shaped(
    space: Space,
    constants: Sequence[float],
    most: Mapping[str, int],
    dtypes: Sequence[str] = (),
) -> tuple[Case, ...]:
    """Return the cases of a space, of each shape so many at most; the most usual mistakes first."""
    return _shaped(space, tuple(constants), tuple(most.items()), tuple(dtypes))


@lru_cache(maxsize=8)
def _shaped(
    space: Space,
    constants: tuple[float, ...],
    most: tuple[tuple[str, int], ...],
    dtypes: tuple[str, ...],
) -> tuple[Case, ...]:
    at_most = dict(most)
    families = {CONSTANTS: around(space, constants, dtypes)}
    families |= {name: family(space) for name, family in FAMILIES.items()}
    chosen = (
        islice((case for case in cases if case is not None), at_most[name])
        for name, cases in families.items()
    )
    return tuple(dict.fromkeys(chain.from_iterable(chosen)))
