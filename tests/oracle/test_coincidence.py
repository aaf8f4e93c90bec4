"""The coincidence conditions of the specification hold in both directions, exhaustively."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import pytest

from aggverify import oracles
from aggverify.oracles import MODES, OracleError, Sample, Step
from aggverify.oracles.coincidence import classes, distinguishes
from tests.oracle.drawing import step_of

LARGEST_COUNT = 3
ROLLOUTS = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens and prompt group of each rollout: all that the weights of a step depend on."""

    tokens: tuple[int, ...]
    groups: tuple[int, ...]

    @property
    def of_group(self) -> list[int]:
        return [
            sum(m for m, g in zip(self.tokens, self.groups, strict=True) if g == group)
            for group in sorted(set(self.groups))
        ]

    def step(self) -> Step:
        """One sample per rollout, with a masked token in front; odd rollouts in two samples."""
        samples = []
        for r, (m, g) in enumerate(zip(self.tokens, self.groups, strict=True)):
            parts = (m // 2, m - m // 2) if r % 2 else (m,)
            samples += [Sample(1, b"\0" + b"\1" * part, r, g) for part in parts]
        return Step(tuple(samples))


def groupings(n: int) -> Iterator[tuple[int, ...]]:
    """Every way to put n rollouts into groups, up to the groups' names."""
    for labels in product(range(n), repeat=n):
        if all(label <= max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            yield labels


@lru_cache(maxsize=1)
def every_shape() -> tuple[tuple[Shape, Step], ...]:
    shapes = [
        Shape(tokens, groups)
        for n in range(1, ROLLOUTS + 1)
        for groups in groupings(n)
        for tokens in product(range(LARGEST_COUNT + 1), repeat=n)
    ]
    return tuple((shape, shape.step()) for shape in shapes)


def test_the_enumeration_is_complete() -> None:
    # Bell numbers 1, 2, 5, 15 times 4^n
    assert len(every_shape()) == 1 * 4 + 2 * 16 + 5 * 64 + 15 * 256
    assert len({(shape.tokens, shape.groups) for shape, _ in every_shape()}) == len(every_shape())


def sample_is_token(shape: Shape) -> bool:
    return len(set(shape.tokens)) == 1


def prompt_is_token(shape: Shape) -> bool:
    return len(set(shape.of_group)) == 1


def sample_is_prompt(shape: Shape) -> bool:
    """Inside each non-empty group the non-empty rollouts have equal M_r and number N/P."""
    n, p = len(shape.tokens), len(set(shape.groups))
    for group in set(shape.groups):
        inside = [m for m, g in zip(shape.tokens, shape.groups, strict=True) if g == group and m]
        if inside and (len(set(inside)) > 1 or len(inside) * p != n):
            return False
    return True


@pytest.mark.parametrize(
    ("modes", "condition"),
    [
        (("sample_mean", "token_mean"), sample_is_token),
        (("prompt_mean", "token_mean"), prompt_is_token),
        (("sample_mean", "prompt_mean"), sample_is_prompt),
    ],
)
def test_means(modes: tuple[str, str], condition: object) -> None:
    seen = {True: 0, False: 0}
    for shape, step in every_shape():
        expected = condition(shape) or not any(shape.tokens)  # type: ignore[operator]
        seen[expected] += 1
        assert distinguishes(step, modes) is not expected, shape
    assert all(seen.values())  # neither direction is vacuous


def constant_is(mode: str, shape: Shape, divisor: Fraction) -> bool:
    n = len(shape.tokens)
    match mode:
        case "token_mean":
            return divisor * n == sum(shape.tokens)
        case "sample_mean":
            return all(m == divisor for m in shape.tokens if m)
        case _:
            p = len(set(shape.groups))
            return all(p * m == divisor * n for m in shape.of_group if m)


@pytest.mark.parametrize("mode", ["token_mean", "sample_mean", "prompt_mean"])
def test_constant(mode: str) -> None:
    seen = {True: 0, False: 0}
    for shape, step in every_shape():
        if not any(shape.tokens):
            continue
        mean = Fraction(sum(shape.tokens), len(shape.tokens))
        per_group = Fraction(max(shape.of_group) * len(set(shape.groups)), len(shape.tokens))
        for divisor in {mean, per_group, Fraction(max(shape.tokens)), Fraction(2)}:
            expected = constant_is(mode, shape, divisor)
            seen[expected] += 1
            assert distinguishes(step, ("constant", mode), divisor=divisor) is not expected
    assert all(seen.values())


def test_equal_lengths_are_not_enough_for_prompt_and_token() -> None:
    assert distinguishes(step_of("11 11; 11"), ("prompt_mean", "token_mean"))
    assert not distinguishes(step_of("1 111; 11 11"), ("prompt_mean", "token_mean"))


def test_classes_of_the_friendliest_step_and_of_a_useful_one() -> None:
    everywhere = ("sample_mean", "prompt_mean", "token_mean", "constant")
    blind = step_of("11 11; 11 11")
    assert classes(blind, MODES, divisor=2) == (everywhere, ("token_sum",), ("sequence_sum",))
    assert not distinguishes(blind, MODES, divisor=2)
    assert distinguishes(step_of("1 11111; 11"), MODES, divisor=16)


def test_nothing_unmasked_tells_nothing_apart() -> None:
    assert classes(step_of("00 0; 0"), MODES) == (tuple(MODES),)


def test_classes_agree_with_whole_weight_vectors() -> None:
    for _, step in every_shape()[::37]:
        for one, other in product(MODES, repeat=2):
            divisors = (16.0 if MODES[m].needs_divisor else None for m in (one, other))
            equal = oracles.weights(one, step, divisor=next(divisors)) == oracles.weights(
                other, step, divisor=next(divisors)
            )
            assert equal == any(one in c and other in c for c in classes(step, MODES))


def test_naming_a_mode_twice_is_refused() -> None:
    with pytest.raises(OracleError, match="must differ, got 'token_mean' twice"):
        distinguishes(step_of("1"), ["token_mean", "token_mean"])
