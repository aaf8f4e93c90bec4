"""Bounds as verdicts: what is caught for certain, what must never be blamed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggverify.checks.comparison import margin, scalar_mismatch, weighted_sum, worst_weight
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.oracles.bounds import PRECISIONS, scalar_bound, weight_bound
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

counts = st.integers(1, 2**24 - 1)
K = 13


def subject(mode: str = "token_mean") -> Subject:
    return Subject.of(Claim("f.py", "reduce", "native", "sum", mode))


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


@pytest.mark.parametrize("errors", [(1, 2, 4), (4, 2, 1), (2, 4, 1), (2, -4, 1)])
def test_the_worst_of_several_is_named(errors: tuple[int, ...]) -> None:
    weights = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    observed = np.array([float(w) + e / 64 for w, e in zip(weights, errors, strict=True)])
    found = worst_weight(observed, weights, K, "float64")
    assert found is not None
    assert (abs(errors[found.token or 0]), found.error) == (4, Fraction(1, 16))


def test_the_opposite_sign_is_a_mismatch() -> None:
    found = worst_weight(np.array([-0.5]), [Fraction(1, 2)], K, "float64")
    assert found is not None
    assert found.error == 1


def test_pairs_that_differ_are_not_taken_for_one() -> None:
    found = worst_weight(np.array([0.5, 1.0]), [Fraction(3, 4), Fraction(1, 4)], K, "float64")
    assert found is not None
    assert (found.token, found.error) == (1, Fraction(3, 4))


@given(n=counts, k=st.integers(1, 40), sign=st.sampled_from([-1, 1]))
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_exact_bound_decides_to_the_last_bit(precision: str, n: int, k: int, sign: int) -> None:
    expected = Fraction(1, n)
    bound = weight_bound(expected, k, PRECISIONS[precision])
    observed = float(expected + sign * bound)
    for _ in range(4):
        observed = float(np.nextafter(observed, 0))
    for _ in range(8):
        beyond = abs(Fraction(observed) - expected) > bound
        assert (worst_weight(np.array([observed]), [expected], k, precision) is not None) == beyond
        observed = float(np.nextafter(observed, 1))


def test_a_norm_over_rollouts_has_as_many_roundings_as_the_step_has_of_them() -> None:
    normed = Subject.of(Claim("r.py", "r", "native", "sum", "vl_norm", divisor=16.0))
    few, many = (parse_step("; ".join(["1/1"] * n)) for n in (61, 640))
    assert normed.roundings_on(few) == normed.roundings_on() == 8 + 64
    assert normed.roundings_on(many) == 8 + 640 + 3
    assert subject().roundings_on(many) == subject().roundings_on() == 8


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
    assert margin(np.array([1 / 3, 7.0]), expected, K, "float64") < 0.1  # masked: not its business
    assert margin(np.array([np.nan, 0.0]), expected, K, "float64") == np.inf


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
    low = subject().knowing(computes_in="float32")
    assert scalar_mismatch(low, case, right + Fraction(1, 10**8), weights) is None


@pytest.mark.parametrize(
    ("losses", "magnitude", "additions"),
    [((1, 2, 4), 7, 2), ((1, -2, 4), 7, 2), ((0, 2, 4), 6, 1), ((0, 0, 4), 4, 0)],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_bound_of_the_scalar_is_of_what_was_added(
    losses: tuple[int, ...], magnitude: int, additions: int, dtype: str
) -> None:
    step = parse_step("1/1 1/11")
    case = Case(step, Layout.trivial(2), tuple(map(float, losses)), dtype)
    weights = subject().expected(step)
    assert weights is not None
    right, roundings = Fraction(sum(losses), 3), subject().roundings_on() + 1
    bound = scalar_bound(Fraction(magnitude, 3), additions, roundings, PRECISIONS[dtype])
    off = scalar_mismatch(subject(), case, right + bound * 2, weights)
    assert off is not None
    assert (off.token, off.error, off.bound, off.exact) == (None, 2 * bound, bound, right)
    assert scalar_mismatch(subject(), case, right + bound, weights) is None


@given(
    st.lists(st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(-2, 7)]), max_size=9), st.data()
)
def test_a_weighted_sum_is_the_exact_one_of_its_terms(
    weights: list[Fraction], data: st.DataObject
) -> None:
    loss = st.floats(-1e300, 1e300)
    losses = data.draw(st.lists(loss, min_size=len(weights), max_size=len(weights)))
    weights = [w if data.draw(st.booleans()) else Fraction(w.numerator, w.denominator)
               for w in weights]  # fmt: skip
    terms = [w * Fraction(x) for w, x in zip(weights, losses, strict=True) if w and x]
    assert weighted_sum(weights, losses) == (sum(terms), sum(map(abs, terms)), len(terms))


def test_a_scalar_of_nothing_must_be_nothing() -> None:
    step = parse_step("1/1")
    case = Case(step, Layout.trivial(1), (0.0,))
    assert scalar_mismatch(subject(), case, Fraction(0), [Fraction(1)]) is None
    assert scalar_mismatch(subject(), case, Fraction(1), [Fraction(1)]) is not None


@given(n=st.integers(2, 4096), k=st.integers(1, 16))
def test_rounding_of_all_weights_together_is_known_and_no_more_than_that(n: int, k: int) -> None:
    expected = [Fraction(1, n)] * n
    observed = np.full(n, float(expected[0]))
    bound = float(weight_bound(expected[0], k, PRECISIONS["float64"]))
    observed[0] += max(4 * bound, k * 2.0**-54)
    found = worst_weight(observed, expected, k, "float64")
    assert found is not None
    assert found.accumulated == (found.error <= found.limit)
    observed[0] = float(expected[0] + 4 * found.limit)
    beyond = worst_weight(observed, expected, k, "float64")
    assert beyond is not None and not beyond.accumulated
    # A factor of 1e-11 is beyond it on any step of so many tokens.
    off = worst_weight(observed[1:] * (1 + 1e-11), expected[1:], k, "float64")
    assert off is not None and not off.accumulated


def test_a_masked_token_is_allowed_none() -> None:
    expected = [Fraction(1, 8)] * 7 + [Fraction(0)]
    observed = np.array([0.125] * 7 + [2.0**-56])
    masked = worst_weight(observed, expected, K, "float64")
    assert masked is not None and masked.limit == 0


def test_in_float32_running_sums_are_allowed_theirs_and_a_factor_is_not() -> None:
    expected = [Fraction(1, 16)] * 16
    observed = np.full(16, 1 / 16)
    bound = weight_bound(expected[0], K, PRECISIONS["float32"])
    observed[3:] += 2 * float(bound)
    found = worst_weight(observed, expected, K, "float32")
    assert found is not None and found.accumulated
    for planted in (observed + 4 * float(found.limit), np.full(16, (1 + 2**-12 + 1e-6) / 16)):
        beyond = worst_weight(planted, expected, K, "float32")
        assert beyond is not None and not beyond.accumulated
    # All moved by one small factor: no running sum does that.
    factor = worst_weight(np.full(16, 1 / 16) * (1 + 1e-6), expected, 8, "float32")
    assert factor is not None and factor.limit == 0
    some = np.where(np.arange(16) < 8, 1.0, 1 + 2**-11) / 16
    partly = worst_weight(some, expected, K, "float32")
    assert partly is not None and not partly.accumulated
    low = worst_weight(observed * (1 + 2**-4 * (np.arange(16) > 2)), expected, K, "bfloat16")
    assert low is None or low.limit == 0
