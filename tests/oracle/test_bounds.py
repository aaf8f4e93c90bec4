"""Bounds hold for adversarial arithmetic, and correct arithmetic comes near them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.bounds import PRECISIONS, relative, scalar_bound, smallest_caught, weight_bound

NUMPY = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
counts = st.integers(1, 2**10)


@pytest.mark.parametrize(
    ("name", "p", "smallest", "largest"),
    [
        ("float64", 53, 5e-324, 1.7976931348623157e308),
        ("float32", 24, 2.0**-149, 3.4028234663852886e38),
        ("float16", 11, 2.0**-24, 65504.0),
        ("bfloat16", 8, 2.0**-133, 3.3895313892515355e38),
    ],
)
def test_formats(name: str, p: int, smallest: float, largest: float) -> None:
    precision = PRECISIONS[name]
    assert precision.unit_roundoff == Fraction(1, 2**p)
    assert precision.min_subnormal == Fraction(smallest)
    assert precision.max_finite == Fraction(largest)
    if name in NUMPY:
        info = np.finfo(NUMPY[name])
        assert precision.min_normal == Fraction(float(info.tiny))


@pytest.mark.parametrize("name", NUMPY)
@given(chain=st.lists(st.tuples(counts, st.booleans()), min_size=1, max_size=8))
def test_chains_of_products_stay_within(name: str, chain: list[tuple[int, bool]]) -> None:
    kind, precision = NUMPY[name], PRECISIONS[name]
    computed, exact, roundings = kind(1), Fraction(1), 0
    with np.errstate(over="ignore", under="ignore"):
        for count, divide in chain:
            factor = kind(count)
            computed = kind(computed / factor) if divide else kind(computed * factor)
            exact = exact / count if divide else exact * count
            roundings += 1
            if not precision.min_normal <= abs(exact) <= precision.max_finite:
                return  # overflow and repeated underflow are judged by their own rules
    error = abs(Fraction(float(computed)) - exact)
    assert error <= weight_bound(exact, roundings, precision)


@pytest.mark.parametrize(("name", "weights"), [("float64", 4000), ("float32", 4000)])
def test_the_weight_bound_is_not_slack(name: str, weights: int) -> None:
    kind, precision = NUMPY[name], PRECISIONS[name]
    worst = Fraction(0)
    for n in range(3, weights):
        exact = Fraction(1, n * 7 * 11)
        computed = kind(1) / kind(n) / kind(7) / kind(11)
        bound = weight_bound(exact, 13, precision)
        worst = max(worst, abs(Fraction(float(computed)) - exact) / bound)
    assert Fraction(5, 100) <= worst <= 1


@pytest.mark.parametrize("n", [2, 1000, 2**20])
def test_a_sequential_float32_sum_reaches_the_scalar_bound(n: int) -> None:
    # 1 + u ties to 1, again and again: a sequential accumulator loses every term but the first.
    u = np.float32(2.0**-24)
    assert np.float32(1) + u == 1
    terms = np.full(n, u)
    terms[0] = 1
    computed = np.add.accumulate(terms, dtype=np.float32)[-1]
    exact = 1 + (n - 1) * Fraction(float(u))
    error = abs(Fraction(float(computed)) - exact)
    bound = scalar_bound(exact, n - 1, 0, PRECISIONS["float32"])
    assert Fraction(90, 100) * bound <= error <= bound


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.randoms())
def test_any_order_stays_within_the_scalar_bound(values: list[float], rng: object) -> None:
    rng.shuffle(values)  # type: ignore[attr-defined]
    total = np.float32(0)
    for value in values:
        total = np.float32(total + np.float32(value))
    exact = sum(map(Fraction, values))
    magnitude = sum(abs(Fraction(v)) for v in values)
    bound = scalar_bound(magnitude, len(values) - 1, 0, PRECISIONS["float32"])
    assert abs(Fraction(float(total)) - exact) <= bound


@given(st.integers(1, 20), st.sampled_from(sorted(PRECISIONS)))
def test_two_values_within_the_bound_are_within_what_is_caught(k: int, name: str) -> None:
    bound = relative(k, PRECISIONS[name])
    caught = smallest_caught(bound)
    assert caught > 2 * bound
    # a wrong weight beyond it misses the bound even when rounded towards the right one
    wrong = (1 + caught) * (1 - bound)
    assert wrong - 1 >= bound


def test_a_bound_of_one_catches_nothing_for_certain() -> None:
    assert smallest_caught(Fraction(1)) > 10**6
