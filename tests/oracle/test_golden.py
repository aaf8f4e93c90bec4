"""Numbers published or obtained elsewhere, each with its source."""

from __future__ import annotations

from fractions import Fraction

import pytest

import oracles
from aggverify.notation import parse_step

TOY = parse_step("1/111; 1/1; 1/11; 1/1111")
"""Lengths 3, 1, 2, 4 with losses 1 to 10 in order: the batch used to run the frameworks' code."""

SKYRL = parse_step("1/11 1/10; 1/11 1/11")
"""SkyRL's unit tests: prompts of two rows, one masked token; advantages 1 to 8."""


@pytest.mark.parametrize(
    ("mode", "divisor", "expected"),
    [
        ("token_mean", None, Fraction(11, 2)),
        ("sample_mean", None, Fraction(5)),
        ("sequence_sum", None, Fraction(55, 4)),
        ("constant", 4.0, Fraction(55, 16)),
        ("token_sum", None, Fraction(55)),
    ],
)
def test_toy_batch(mode: str, divisor: float | None, expected: Fraction) -> None:
    assert oracles.scalar(mode, TOY, range(1, 11), divisor=divisor) == expected


@pytest.mark.parametrize(
    ("mode", "divisor", "expected"),
    [
        ("token_mean", None, Fraction(32, 7)),
        ("sample_mean", None, Fraction("4.375")),
        ("constant", 2.0, Fraction(4)),
        ("prompt_mean", None, Fraction("4.25")),
    ],
)
def test_skyrl_unit_test_batch(mode: str, divisor: float | None, expected: Fraction) -> None:
    assert oracles.scalar(mode, SKYRL, range(1, 9), divisor=divisor) == expected


def test_twinkle_292() -> None:
    # lengths 1 and 3, advantages +1 and -1: the loss is 0.5, micro-batches of one made it 0
    step = parse_step("1/1; 1/111")
    assert oracles.scalar("token_mean", step, [-1.0, 1.0, 1.0, 1.0]) == Fraction(1, 2)


def test_miles_1328() -> None:
    # one sample, losses 1, 2, 3: divisor 4 gives 1.5, the default 2.0, 1000 gives 0.006
    step = parse_step("1/111")
    losses = [1, 2, 3]
    assert oracles.scalar("constant", step, losses, divisor=4) == Fraction("1.5")
    assert oracles.scalar("sample_mean", step, losses) == Fraction(2)
    assert oracles.scalar("constant", step, losses, divisor=1000) == Fraction("0.006")


@pytest.mark.parametrize(
    ("reading", "weights"),
    [
        ("rollout", (Fraction(1, 10), Fraction(1, 10), Fraction(1, 8))),
        ("sample", (Fraction(1, 6), Fraction(1, 9), Fraction(1, 12))),
        ("samples_over_rollouts", (Fraction(1, 4), Fraction(1, 6), Fraction(1, 8))),
        ("mean_within_rollout", (Fraction(1, 8), Fraction(1, 12), Fraction(1, 8))),
    ],
)
def test_readings_of_a_rollout_with_several_samples(
    reading: str, weights: tuple[Fraction, Fraction, Fraction]
) -> None:
    # rollouts with samples of 2 and 3 tokens, and of 4 tokens
    step = parse_step("1/11+1/111 1/1111")
    policy = oracles.Policy(several_samples=reading)  # type: ignore[arg-type]
    found = oracles.weights("sample_mean", step, policy=policy)
    assert (found[0], found[2], found[5]) == weights
