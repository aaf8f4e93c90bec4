"""Bounds as verdicts: what is caught for certain, what must never be blamed."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggverify.case import Case
from aggverify.checks.comparison import margin, scalar_mismatch, worst_weight
from aggverify.conventions import convention
from aggverify.engines import engine
from aggverify.layouts import Layout
from aggverify.notation import parse_step
from aggverify.subject import Subject
from oracles.bounds import PRECISIONS

counts = st.integers(1, 2**24 - 1)
K = 13


def subject(mode: str = "token_mean") -> Subject:
    return Subject("f.py", "reduce", convention("native"), engine("sum"), mode)


@given(n=counts, sign=st.sampled_from([-1, 1]))
@pytest.mark.parametrize(("precision", "delta"), [("float32", 1e-4), ("float64", 1e-10)])
def test_a_wrong_factor_is_always_caught(precision: str, delta: float, n: int, sign: int) -> None:
    expected = Fraction(1, n)
    # The wrong weight may itself be off by the whole bound towards the right one.
    u = float(PRECISIONS[precision].unit_roundoff)
    wrong = float(expected) * (1 + sign * (delta - 2 * K * u))
    found = worst_weight(np.array([wrong]), [expected], K, precision)
    assert found is not None
    assert found.token == 0
    assert found.error > found.bound > 0


@given(n=counts, m=counts, scale=counts)
def test_a_correct_chain_is_never_blamed(n: int, m: int, scale: int) -> None:
    expected = Fraction(scale, n * m)
    double = 1.0 / n / m * scale
    assert worst_weight(np.array([double]), [expected], K, "float64") is None
    one = np.float32(1.0)
    single = one / np.float32(n) / np.float32(m) * np.float32(scale)
    assert worst_weight(np.array([float(single)]), [expected], K, "float32") is None


def test_masked_tokens_must_weigh_exactly_nothing() -> None:
    assert worst_weight(np.array([-0.0]), [Fraction(0)], K, "float64") is None
    found = worst_weight(np.array([5e-324]), [Fraction(0)], K, "float64")
    assert found is not None
    assert found.bound == 0


def test_the_worst_token_is_named() -> None:
    found = worst_weight(np.array([0.5, 0.5, 0.75]), [Fraction(1, 2)] * 3, K, "float64")
    assert found is not None
    assert (found.token, found.error) == (2, Fraction(1, 4))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_a_mismatch(bad: float) -> None:
    found = worst_weight(np.array([0.5, bad]), [Fraction(1, 2)] * 2, K, "float64")
    assert found is not None
    assert found.token == 1


def test_margin_is_error_over_bound() -> None:
    expected = [Fraction(1, 3), Fraction(0)]
    assert margin(np.array([1 / 3, 0.0]), expected, K, "float64") < 0.1
    u = 2.0**-53
    near = margin(np.array([1 / 3 * (1 + K * u * 0.9), 0.0]), expected, K, "float64")
    assert 0.7 < near <= 1


def test_the_reported_scalar_is_compared_too() -> None:
    step = parse_step("1/1 1/110")
    case = Case(step, Layout.trivial(2), (1.0, 2.0, 4.0, float("nan")))
    right = Fraction(7, 3)
    weights = subject().expected(step)
    assert weights is not None
    assert scalar_mismatch(subject(), case, right, weights) is None
    off = scalar_mismatch(subject(), case, right + Fraction(1, 10**8), weights)
    assert off is not None
    assert off.error > off.bound
    low = dataclasses.replace(subject(), computes_in="float32")
    assert scalar_mismatch(low, case, right + Fraction(1, 10**8), weights) is None
