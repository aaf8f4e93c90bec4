"""Bounds hold for adversarial arithmetic, and correct arithmetic comes near them."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from aggverify.oracles import OracleError, mode
from aggverify.oracles.bounds import (
    PRECISIONS,
    Precision,
    caught,
    lowest,
    may_overflow,
    relative,
    scalar_bound,
    smallest_caught,
    weight_bound,
)
from aggverify.oracles.exact import exact_sum

NUMPY = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
NAMES = tuple(PRECISIONS)
CANDIDATE = 8
"""Roundings of a reducer on one token's path, as docs/bounds.md counts them."""
RUN = 13
"""Roundings on the longest path of a verdict."""

FACTORS = (3, 5, 7, 11, 13, 3, 5, 7, 3, 11, 5, 13)

every = pytest.mark.parametrize("precision", PRECISIONS.values(), ids=NAMES)


@pytest.mark.parametrize(
    ("name", "p", "smallest", "largest", "infinite"),
    [
        ("float64", 53, 5e-324, 1.7976931348623157e308, 2**1024 - 2**970),
        ("float32", 24, 2.0**-149, 3.4028234663852886e38, 2**128 - 2**103),
        ("float16", 11, 2.0**-24, 65504.0, 65520),
        ("bfloat16", 8, 2.0**-133, 3.3895313892515355e38, 2**128 - 2**119),
    ],
)
def test_formats(name: str, p: int, smallest: float, largest: float, infinite: int) -> None:
    precision = PRECISIONS[name]
    assert precision.unit_roundoff == Fraction(1, 2**p)
    assert precision.min_subnormal == Fraction(smallest)
    assert precision.max_finite == Fraction(largest)
    assert precision.overflow_at == infinite
    assert precision.round(precision.overflow_at) is None
    below = precision.overflow_at - Fraction(1, 2**2000)
    assert precision.round(below) == precision.max_finite
    if name in NUMPY:
        assert precision.min_normal == Fraction(float(np.finfo(NUMPY[name]).tiny))


@pytest.mark.parametrize("name", ["float16", "float32"])
@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e-5, 1e-5))
@example(value=65520.0)
@example(value=2.0**-25)
@example(value=3 * 2.0**-150)
def test_rounding_is_that_of_numpy(name: str, value: float) -> None:
    with np.errstate(over="ignore"):
        expected = NUMPY[name](value)
    found = PRECISIONS[name].round(Fraction(value))
    assert found == (Fraction(float(expected)) if np.isfinite(expected) else None)


@pytest.mark.parametrize(
    ("count", "told"), [(256, 256), (257, 256), (258, 258), (259, 260), (4097, 4096)]
)
def test_counts_in_bfloat16(count: int, told: int) -> None:
    assert PRECISIONS["bfloat16"].round(count) == told


@pytest.mark.parametrize(
    ("name", "stall"), [("bfloat16", 256), ("float16", 2048), ("float32", 2**24)]
)
def test_where_counting_stalls(name: str, stall: int) -> None:
    precision = PRECISIONS[name]
    assert precision.counts_exactly_up_to == stall
    assert precision.round(stall - 1) == stall - 1
    assert precision.round(stall + 1) == stall


def chain(
    factors: list[tuple[Fraction, bool]], precision: Precision
) -> tuple[Fraction | None, Fraction, Fraction, bool]:
    """Computed and exact product of rounded steps; the largest product of later factors; and
    whether an exact intermediate value could overflow."""
    computed: Fraction | None = Fraction(1)
    exact, could_overflow, amplification = Fraction(1), False, Fraction(1)
    for count, (factor, divide) in enumerate(factors, 1):
        applied = 1 / factor if divide else factor
        exact *= applied
        if count > 1:  # what follows the first rounding, or one since
            amplification = max(Fraction(1), amplification * applied)
        could_overflow |= may_overflow(exact, count, precision, amplification=amplification)
        if computed is not None:
            computed = precision.round(computed * applied)
    return computed, exact, amplification, could_overflow


@every
@given(data=st.data())
def test_products_and_quotients_stay_within(precision: Precision, data: st.DataObject) -> None:
    # Small factors and huge ones: under- and overflow are reached, in every format's own range.
    low, high = precision.min_exponent // 3, precision.max_exponent // 3
    factor = st.builds(
        lambda n, e: precision.round(n * Fraction(2) ** e) or Fraction(1),
        st.integers(1, 4096),
        st.integers(low, high) | st.just(0),
    )
    factors = data.draw(st.lists(st.tuples(factor, st.booleans()), min_size=1, max_size=RUN))
    computed, exact, amplification, could_overflow = chain(factors, precision)
    assert computed is not None or could_overflow
    if not could_overflow:
        assert computed is not None
        bound = weight_bound(exact, len(factors), precision, amplification=amplification)
        assert abs(computed - exact) <= bound


def test_an_underflow_that_is_multiplied_needs_the_amplification() -> None:
    # 1/count is subnormal in float16; times the count, the lost bits are a part in a thousand.
    precision = PRECISIONS["float16"]
    short, worst = weight_bound(Fraction(1), 2, precision), Fraction(0)
    for count in range(32768, 65504, 32):
        computed, exact, amplification, _ = chain(
            [(Fraction(count), True), (Fraction(count), False)], precision
        )
        assert computed is not None and exact == 1 and amplification == count
        error = abs(computed - exact)
        assert error <= weight_bound(exact, 2, precision, amplification=amplification)
        worst = max(worst, error)
    assert worst > short


def test_an_underflow_that_is_multiplied_may_overflow() -> None:
    # Subnormal after five roundings; what is lost there is a hundredth of the product at the end.
    precision = PRECISIONS["float16"]
    upwards = (674, Fraction(1, 2), Fraction(361, 8), Fraction(32, 997), 1389, 1449)
    steps = [28, Fraction(1, 40), 387, Fraction(1, 2668), Fraction(1, 61632), 40, *upwards]
    factors = [(Fraction(step), False) for step in steps]
    computed, exact, amplification, could_overflow = chain(factors, precision)
    assert computed is None and could_overflow
    assert not may_overflow(exact, len(factors), precision), "by its own roundings alone"
    assert may_overflow(exact, len(factors), precision, amplification=amplification)


@every
@pytest.mark.parametrize("rollouts", [1, 2, 61, 62, 300, 640])
@pytest.mark.parametrize("longest", [1, 40])
def test_a_norm_of_many_quotients_stays_within_its_allowance(
    precision: Precision, rollouts: int, longest: int
) -> None:
    lengths = [1 + 7 * n % longest for n in range(rollouts)]
    right = 1 / (16 * sum(Fraction(1, n) for n in lengths))
    norm = Fraction(0)
    for n in lengths:
        norm = known(precision, norm + known(precision, Fraction(1, n)))
    weight = known(precision, 1 / known(precision, 16 * norm))
    allowed = CANDIDATE + mode("vl_norm").more_roundings(rollouts)
    assert abs(weight - right) <= weight_bound(right, allowed, precision, amplification=1 / right)
    if precision.p == 8 and rollouts == 640 and longest == 1:  # 64 roundings were not enough
        few = weight_bound(right, CANDIDATE + 64, precision, amplification=1 / right)
        assert abs(weight - right) > few


def known(precision: Precision, exact: Fraction) -> Fraction:
    rounded = precision.round(exact)
    assert rounded is not None
    return rounded


@every
@pytest.mark.parametrize("roundings", [3, RUN])
def test_the_weight_bound_is_not_slack(precision: Precision, roundings: int) -> None:
    # Correct chains of so many roundings, quotients and products in turn: the worst of them.
    worst = Fraction(0)
    for n in range(3, 120):
        factors = [(Fraction(f), i % 2 == 0) for i, f in enumerate((n, *FACTORS))]
        computed, exact, _, could_overflow = chain(factors[:roundings], precision)
        assert computed is not None and not could_overflow
        worst = max(worst, abs(computed - exact) / weight_bound(exact, roundings, precision))
    assert Fraction(5, 100) <= worst <= 1


def test_the_weight_bound_is_not_slack_where_float16_underflows() -> None:
    precision = PRECISIONS["float16"]
    worst = Fraction(0)
    for n in range(2048, 8192, 7):
        rounded = precision.round(Fraction(n))
        assert rounded is not None
        computed = precision.round(1 / rounded)
        assert computed is not None
        bound = weight_bound(Fraction(1, n), 2, precision)
        worst = max(worst, abs(computed - Fraction(1, n)) / bound)
    assert Fraction(30, 100) <= worst <= 1


@every
@given(data=st.data())
def test_any_order_and_any_tree_stays_within_the_scalar_bound(
    precision: Precision, data: st.DataObject
) -> None:
    raw = data.draw(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=30))
    values = [precision.round(Fraction(v)) or Fraction(0) for v in raw]
    pending = list(values)
    while len(pending) > 1:
        a = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
        b = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
        added = precision.round(a + b)
        assume(added is not None)
        pending.append(added or Fraction(0))
    bound = scalar_bound(sum(map(abs, values), Fraction(0)), len(values) - 1, 0, precision)
    assert abs(pending[0] - sum(values)) <= bound


@every
@settings(max_examples=50)
@given(data=st.data())
def test_scaled_sums_of_scaled_sums_stay_within(precision: Precision, data: st.DataObject) -> None:
    # Micro-batches: products w*l added up, divided, added up over ranks, divided again.
    cell = st.lists(st.integers(1, 4000), min_size=1, max_size=6)
    cells = data.draw(st.lists(cell, min_size=1, max_size=4))
    inner, outer = data.draw(st.integers(1, 99)), data.draw(st.integers(1, 99))
    total, exact = Fraction(0), Fraction(0)
    for losses in cells:
        partial = Fraction(0)
        for loss in losses:
            partial = _rounded(partial + _rounded(Fraction(loss), precision), precision)
        total = _rounded(total + _rounded(partial / inner, precision), precision)
        exact += Fraction(sum(losses), inner * outer)
    total = _rounded(total / outer, precision)
    levels = (max(map(len, cells)), len(cells))
    bound = scalar_bound(exact, levels, 3, precision, amplification=1)
    assert abs(total - exact) <= bound


def _rounded(value: Fraction, precision: Precision) -> Fraction:
    rounded = precision.round(value)
    assume(rounded is not None)
    return rounded or Fraction(0)


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


@every
def test_a_sequential_sum_reaches_the_scalar_bound_in_every_format(precision: Precision) -> None:
    n, u = 200, precision.unit_roundoff
    total = Fraction(1)
    for _ in range(n - 1):
        total = precision.round(total + u) or Fraction(0)
    exact = 1 + (n - 1) * u
    bound = scalar_bound(exact, n - 1, 0, precision)
    assert Fraction(50, 100) * bound <= abs(total - exact) <= bound


def test_a_million_float32_tokens_in_bad_orders() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(2**20).astype(np.float32)
    exact, magnitude = exact_sum(values), exact_sum(np.abs(values))
    bound = scalar_bound(magnitude, values.size - 1, 0, PRECISIONS["float32"])
    for order in (np.sort(values), np.sort(values)[::-1], values[np.argsort(-np.abs(values))]):
        computed = np.add.accumulate(order, dtype=np.float32)[-1]
        assert abs(Fraction(float(computed)) - exact) <= bound


@given(st.integers(0, 20), st.sampled_from(NAMES), st.booleans())
def test_what_is_beyond_the_smallest_caught_misses_the_bound(
    k: int, name: str, smaller: bool
) -> None:
    bound = relative(k, PRECISIONS[name])
    delta = smallest_caught(bound)
    assert isinstance(delta, Fraction)
    # A wrong weight, rounded as far towards the right one as the bound allows.
    wrong = (1 - delta) * (1 + bound) if smaller else (1 + delta) * (1 - bound)
    assert abs(wrong - 1) >= bound
    if k:
        nearer = (1 + delta * Fraction(99, 100)) * (1 - bound)
        assert abs(nearer - 1) < bound


@pytest.mark.parametrize(("name", "error"), [("float32", "1e-4"), ("float64", "1e-10")])
def test_what_is_promised_for_weights(name: str, error: str) -> None:
    precision = PRECISIONS[name]
    for count in (1, 3, 2**16 + 1, 2**24 - 1):
        assert precision.round(count) == count
        weight = Fraction(1, count * 512)
        bound = weight_bound(weight, RUN, precision, amplification=512)
        assert caught(bound, weight) < Fraction(error)


def test_a_sparse_probe_is_as_sharp_as_a_weight() -> None:
    # One non-zero loss among a million: adding zeros is exact, so there is one term.
    bound = scalar_bound(Fraction(1, 2**20), 0, RUN, PRECISIONS["float32"])
    assert caught(bound, Fraction(1, 2**20)) < Fraction("1e-4")
    dense = scalar_bound(Fraction(1), 10**6 - 1, RUN, PRECISIONS["float32"])
    assert Fraction(5, 100) < dense < Fraction(7, 100)


def test_vacuous_bounds_say_so() -> None:
    assert smallest_caught(Fraction(1)) == math.inf
    assert smallest_caught(Fraction(3)) == math.inf
    assert caught(Fraction(1, 10), Fraction(0)) == math.inf
    cancelled = scalar_bound(Fraction(1), 10**6, RUN, PRECISIONS["bfloat16"])
    assert caught(cancelled, Fraction(1, 10)) == math.inf


def test_overflow() -> None:
    half = PRECISIONS["float16"]
    assert may_overflow(Fraction(65520), 0, half)
    assert not may_overflow(Fraction(65519), 0, half)
    assert may_overflow(Fraction(-65500), 1, half)
    assert not may_overflow(Fraction(65000), 1, half)


def test_lowest_precision() -> None:
    assert lowest(["float32", "bfloat16", "float16"]).name == "bfloat16"
    with pytest.raises(OracleError, match="float64, float32, float16, bfloat16, got 'fp32'"):
        lowest(["float64", "fp32"])
    with pytest.raises(OracleError, match=r"got \[\]"):
        lowest([])


def test_arguments_are_checked() -> None:
    single = PRECISIONS["float32"]
    with pytest.raises(OracleError, match="roundings cannot be negative, got -1"):
        weight_bound(Fraction(1), -1, single)
    with pytest.raises(OracleError, match="additions cannot be negative, got -2"):
        scalar_bound(Fraction(1), -2, 1, single)
    with pytest.raises(OracleError, match=r"additions cannot be negative, got \(\)"):
        scalar_bound(Fraction(1), (), 1, single)
    with pytest.raises(OracleError, match="at least 1, got 0"):
        scalar_bound(Fraction(1), 1, 1, single, amplification=0)


def test_shuffled_products_of_losses_and_weights() -> None:
    # A whole reduction in float16, losses times weights, far into the subnormal range.
    precision, rng = PRECISIONS["float16"], random.Random(5)
    for _ in range(40):
        n = rng.randint(1, 40)
        losses = [precision.round(Fraction(rng.uniform(-9, 9))) or Fraction(0) for _ in range(n)]
        weight = precision.round(Fraction(1, rng.randint(1000, 60000))) or Fraction(0)
        exact = [weight * loss for loss in losses]
        total = Fraction(0)
        for term in exact:
            total = precision.round(total + (precision.round(term) or 0)) or Fraction(0)
        bound = scalar_bound(sum(map(abs, exact), Fraction(0)), n - 1, 1, precision)
        assert abs(total - sum(exact)) <= bound
