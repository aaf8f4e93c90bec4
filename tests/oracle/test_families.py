"""Modes with a parameter: special members, hand-made numbers, irrational powers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from aggverify import oracles
from aggverify.oracles import FAMILIES, OracleError, Policy, Step, mode
from aggverify.oracles.modes.powers import ROOT_BITS, power, power_mp
from tests.oracle.drawing import step_of, steps

F = Fraction


@settings(max_examples=50)
@given(steps(rejected=False))
def test_special_members(step: Step) -> None:
    assert oracles.weights("length_weighted(0)", step) == oracles.weights("sample_mean", step)
    assert oracles.weights("length_weighted(1)", step) == oracles.weights("sequence_sum", step)
    flat = oracles.weights("vl_norm(0)", step, divisor=16)
    assert flat == oracles.weights("constant", step, divisor=16)


def test_vl_norm_by_hand() -> None:
    # Lengths 1, 2, 4: reciprocals 1, 1/2, 1/4 sum to 7/4; shares 4/7, 2/7, 1/7 of 1/L.
    step = step_of("1; 11; 1111")
    found = oracles.weights("vl_norm", step, divisor=10)
    assert (found[0], found[1], found[3]) == (F(4, 70), F(2, 70), F(1, 70))
    # alpha = 2: shares 16/21, 4/21, 1/21.
    found = oracles.weights("vl_norm(2)", step, divisor=10)
    assert (found[0], found[1], found[3]) == (F(16, 210), F(4, 210), F(1, 210))
    # Lengths that are perfect squares keep alpha = 1/2 rational: shares 2/3 and 1/3.
    found = oracles.weights("vl_norm(1/2)", step_of("1; 1111"), divisor=1)
    assert (found[0], found[1]) == (F(2, 3), F(1, 3))


@pytest.mark.parametrize("alpha", ["0", "0.75", "1", "2"])
@settings(max_examples=30)
@given(step=steps(full=True))
def test_vl_norm_averages_the_sums_of_rollouts(alpha: str, step: Step) -> None:
    # The shares of the rollouts sum to 1 (the paper's condition for an unbiased estimate).
    flat = oracles.weights(f"vl_norm({alpha})", step, divisor=5)
    first = [next(i for i in members if step.samples[i]) for members in step.rollouts.values()]
    shares = sum(flat[step.offsets[i] + step.samples[i].loss_mask.index(1)] for i in first)
    assert abs(5 * shares - 1) <= F(len(first), 2 ** (ROOT_BITS - 8))


def test_fully_masked_rollouts_in_vl_norm() -> None:
    step = step_of("11; 00")
    assert oracles.weights("vl_norm", step, divisor=1)[0] == F(1, 3)
    excluding = Policy(empty_units="exclude")
    assert oracles.weights("vl_norm", step, divisor=1, policy=excluding)[0] == 1
    nothing = step_of("00; 0")
    for policy in (oracles.DEFAULT_POLICY, excluding):
        assert oracles.weights("vl_norm", nothing, divisor=1, policy=policy) == (0, 0, 0)
        assert oracles.scalar_mp("vl_norm", nothing, [1, 2, 3], divisor=1, policy=policy) == 0


def test_length_weighted_by_hand() -> None:
    found = oracles.weights("length_weighted(2)", step_of("1; 11+1 0"))
    assert (found[0], found[1]) == (F(1, 3), F(3, 3))


@given(st.integers(1, 10**6), st.integers(-8, 8), st.integers(1, 100))
def test_powers(count: int, numerator: int, denominator: int) -> None:
    exponent = Fraction(numerator, denominator)
    found = power(count, exponent)
    with mp.workdps(150):
        expected = mp.mpf(count) ** (mp.mpf(numerator) / denominator)
        error = abs(mp.mpf(found.numerator) / found.denominator / expected - 1)
        assert error <= mp.ldexp(1, 2 - ROOT_BITS)
        assert mp.almosteq(power_mp(count, exponent), expected, rel_eps=mp.mpf(10) ** -145)
    if exponent.denominator == 1:
        assert found == Fraction(count) ** exponent.numerator


@given(st.integers(1, 400), st.integers(2, 5), st.integers(1, 4))
def test_perfect_powers_stay_rational(base: int, root: int, numerator: int) -> None:
    assert power(base**root, Fraction(numerator, root)) == Fraction(base) ** numerator


@pytest.mark.parametrize("name", ["vl_norm(0.75)", "length_weighted(1/3)"])
@settings(max_examples=30)
@given(step=steps())
def test_two_roads_agree_on_irrational_weights(name: str, step: Step) -> None:
    values = [t + 0.5 for t in range(step.num_response_tokens)]
    divisor = 3 if mode(name).needs_divisor else None
    exact = oracles.scalar(name, step, values, divisor=divisor)
    told = oracles.scalar_mp(name, step, values, digits=60, divisor=divisor)
    with mp.workdps(60):
        assert mp.almosteq(mp.mpf(exact.numerator) / exact.denominator, told, mp.mpf(10) ** -58)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_members(family: str) -> None:
    assert mode(family).name == mode(f"{family}(1)").name == f"{family}(1)"
    assert mode(f"{family}(0.75)").name == f"{family}(3/4)"
    assert mode(f"{family}(3/4)").name == f"{family}(3/4)"
    assert mode(mode(family).name).formula == mode(family).formula


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vl_norm(-1)", "alpha of vl_norm must be from 0 to 8, got -1"),
        ("vl_norm(9)", "alpha of vl_norm must be from 0 to 8, got 9"),
        ("length_weighted(1/0)", "must be a number, got 'length_weighted\\(1/0\\)'"),
        ("length_weighted(0.123)", "denominator up to 100, got 123/1000; write it as a decimal"),
        ("vl_norm(x)", "unknown mode 'vl_norm\\(x\\)'"),
        ("vl_norm()", "unknown mode"),
    ],
)
def test_bad_parameters(name: str, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        mode(name)


def test_vl_norm_needs_its_fixed_length() -> None:
    with pytest.raises(OracleError, match=r"vl_norm\(1\) needs a divisor"):
        oracles.weights("vl_norm", step_of("1"))


def test_an_irrational_member_beside_floats() -> None:
    found = oracles.weights("vl_norm(0.5)", step_of("1 11"), divisor=1)[0]
    assert math.isclose(float(found), math.sqrt(2) / (1 + math.sqrt(2)), rel_tol=2**-50)
