"""Exact rationals and mpmath agree to the last digit asked for, on everything."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp
from mpmath.libmp import from_rational

from aggverify import oracles
from aggverify.oracles import FAMILIES, MODES, PAIRED, OracleError, Step, mode
from tests.oracle.drawing import floats, losses, policies, step_of, steps

NAMES = (
    *MODES,
    *FAMILIES,
    *PAIRED,
    "vl_norm(0)",
    "vl_norm(2)",
    "length_weighted(3)",
    "token_mean_legacy(2)",
)
divisors = (
    st.integers(1, 5000) | st.floats(1e-300, 1e300) | st.fractions(min_value="1/7", max_value=9)
)


def rounded(exact: Fraction, digits: int) -> Any:
    """The nearest mpf of so many digits, rounded once."""
    with mp.workdps(digits):
        return mp.make_mpf(from_rational(exact.numerator, exact.denominator, mp.prec, "n"))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_two_roads_agree(name: str, data: st.DataObject) -> None:
    step, policy = data.draw(steps()), data.draw(policies)
    values = data.draw(losses(step))
    digits = data.draw(st.sampled_from([1, 2, 15, 50, 400]))
    divisor = data.draw(divisors) if mode(name).needs_divisor else None
    exact = oracles.scalar(name, step, values, divisor=divisor, policy=policy)
    told = oracles.scalar_mp(name, step, values, digits=digits, divisor=divisor, policy=policy)
    assert told == rounded(exact, digits)


@pytest.mark.parametrize("digits", [1, 3, 40])
@given(numerator=st.integers(1, 2**70), count=st.integers(1, 9))
@example(numerator=5, count=1)
@example(numerator=(1 << 20) + 1, count=3)
def test_ties_between_two_results(digits: int, numerator: int, count: int) -> None:
    # The scalar is exactly numerator; for few digits it lies halfway between two results.
    step = step_of("1" * count)
    values = [Fraction(numerator * count, count)] * count
    told = oracles.scalar_mp("token_mean", step, values, digits=digits)
    assert told == rounded(Fraction(numerator), digits)


@given(st.lists(floats, min_size=1, max_size=4))
@settings(max_examples=60)
def test_total_and_near_cancellation(values: list[float]) -> None:
    # Thirds of everything, and back: 0 only in exact arithmetic.
    step = step_of(" ".join("111 1" for _ in values))
    there = [x for v in values for x in (v, v, v, -v)]
    assert oracles.scalar("sample_mean", step, there) == 0
    assert oracles.scalar_mp("sample_mean", step, there) == 0
    nearly = [*there[:-1], Fraction(there[-1]) + Fraction(1, 3**2000)]
    told = oracles.scalar_mp("sample_mean", step, nearly, digits=30)
    assert told == rounded(oracles.scalar("sample_mean", step, nearly), 30) != 0


def test_precision_of_mpmath_is_left_alone() -> None:
    before = (mp.dps, mp.prec)
    oracles.scalar_mp("token_mean", step_of("111"), [1.0, 2.0, 4.0], digits=77)
    with pytest.raises(OracleError):
        oracles.scalar_mp("token_mean", step_of("111"), [1.0, 2.0, float("nan")], digits=77)
    assert (mp.dps, mp.prec) == before


def test_as_many_digits_as_asked_for() -> None:
    told = oracles.scalar_mp("token_mean", step_of("111"), [1, 0, 0], digits=60)
    with mp.workdps(60):
        assert mp.nstr(told, 60) == "0." + "3" * 60


@pytest.mark.parametrize("digits", [0, -1, 1.5, True, "50", 100_001])
def test_bad_digits(digits: Any) -> None:
    with pytest.raises(OracleError, match=f"an integer from 1 to 100000, got {digits!r}"):
        oracles.scalar_mp("token_mean", step_of("1"), [1.0], digits=digits)


def test_bfloat16_is_read_by_its_own_definition() -> None:
    every = np.arange(0x7F80, dtype=np.uint16)
    step = step_of("1" * len(every))
    exact = oracles.scalar("token_sum", step, every, dtype="bfloat16")
    told = oracles.scalar_mp("token_sum", step, every, digits=40, dtype="bfloat16")
    assert told == rounded(exact, 40)
    negative = np.array([0xBF80], dtype=np.uint16)
    assert oracles.scalar_mp("token_sum", step_of("1"), negative, dtype="bfloat16") == -1
    with pytest.raises(OracleError, match=r"must be finite numbers, got .*32640"):
        infinite = np.array([0x7F80], dtype=np.uint16)
        oracles.scalar_mp("token_sum", step_of("1"), infinite, dtype="bfloat16")


@pytest.mark.parametrize("name", MODES)
def test_a_mistake_in_one_road_shows(name: str) -> None:
    step = step_of("110+1 11; 1")
    values = [1.5, 2.5, 0.0, 3.5, 4.0, 5.0, 7.0]
    right = mode(name)

    def wrong(step: Step, *rest: Any) -> list[Fraction]:
        return [w * Fraction(10**15 + 1, 10**15) for w in right.sample_weights(step, *rest)]

    divisor = 4 if right.needs_divisor else None
    told = oracles.scalar_mp(name, step, values, divisor=divisor)
    assert told == rounded(oracles.scalar(name, step, values, divisor=divisor), 50)
    spoilt = replace(right, sample_weights=wrong)
    assert told != rounded(oracles.scalar(spoilt, step, values, divisor=divisor), 50)
