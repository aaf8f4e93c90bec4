"""Exact sums and dot products equal Fraction arithmetic on everything Hypothesis finds."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggverify import oracles
from aggverify.oracles import OracleError
from aggverify.oracles.exact import exact_dot, exact_sum, masked_sums, read
from aggverify.oracles.extraction import BLOCK
from tests.oracle.drawing import any_float, awkward, floats, slow_sum, step_of

DTYPES = (np.float16, np.float32, np.float64)
patterns = st.integers(0, 0x7F7F) | st.integers(0x8000, 0xFF7F)
half_patterns = st.integers(0, 0x7BFF) | st.integers(0x8000, 0xFBFF)


@st.composite
def arrays(draw: st.DrawFn, dtype: type, sizes: st.SearchStrategy[int]) -> np.ndarray:
    """Finite numbers of a dtype, subnormal ones included."""
    n = draw(sizes)
    if dtype is np.float16:
        bits = draw(st.lists(half_patterns, min_size=n, max_size=n))
        return np.array(bits, dtype=np.uint16).view(np.float16)
    width = 8 * np.dtype(dtype).itemsize
    finite = st.floats(width=width, allow_nan=False, allow_infinity=False)
    return np.array(draw(st.lists(finite, min_size=n, max_size=n)), dtype=dtype)


def bfloat16(bits: int) -> float:
    """The value of a finite pattern, from the definition of the format."""
    exponent, fraction = bits >> 7 & 0xFF, bits & 0x7F
    size = math.ldexp(fraction + 128, exponent - 134) if exponent else math.ldexp(fraction, -133)
    return -size if bits & 0x8000 else size


@given(st.lists(floats, max_size=40))
@example([1e308, 1e-308, -1e308])
@example([1.7976931348623157e308] * 3)
@example([5e-324] * 7 + [-5e-324])
@example([-0.0, 0.0])
def test_float64(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    assert exact_sum(array) == slow_sum(array)


@given(st.lists(awkward | any_float, max_size=20), st.randoms(use_true_random=False))
def test_total_cancellation_in_any_order(values: list[float], rng: random.Random) -> None:
    both = values + [-x for x in values]
    rng.shuffle(both)
    assert exact_sum(np.array(both, dtype=np.float64)) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_other_dtypes(dtype: type, data: st.DataObject) -> None:
    values = data.draw(arrays(dtype, st.integers(0, 30)))
    assert exact_sum(values) == slow_sum(values)


@given(st.lists(patterns, max_size=30))
def test_bfloat16_bit_patterns(bits: list[int]) -> None:
    array = np.array(bits, dtype=np.uint16)
    assert exact_sum(array, dtype="bfloat16") == slow_sum(map(bfloat16, bits))


def test_every_bfloat16_and_float16_there_is() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    brain = every[(every & 0x7F80) != 0x7F80]
    assert exact_sum(brain, dtype="bfloat16") == slow_sum(map(bfloat16, brain.tolist())) == 0
    positive = brain[brain < 0x8000]
    assert exact_sum(positive, dtype="bfloat16") == slow_sum(map(bfloat16, positive.tolist()))
    half = every.view(np.float16)
    half = half[np.isfinite(half) & (every < 0x8000)]
    assert exact_sum(half) == slow_sum(half)


@given(st.lists(st.tuples(st.booleans(), floats), max_size=30))
def test_masked_values_are_never_used(pairs: list[tuple[bool, float]]) -> None:
    mask = bytes(keep for keep, _ in pairs)
    values = np.array([x if keep else math.nan for keep, x in pairs], dtype=np.float64)
    assert exact_sum(values, mask) == slow_sum(x for keep, x in pairs if keep)


@given(st.lists(st.tuples(floats, floats), max_size=20))
@example([(5e-324, 5e-324), (1e308, 1e308), (1e308, -1e308)])
@example([(1.7976931348623157e308, 1.7976931348623157e308)])
@example([(0.0, 1e308), (-0.0, 5e-324)])
def test_dot_product(pairs: list[tuple[float, float]]) -> None:
    x = np.array([a for a, _ in pairs], dtype=np.float64)
    y = np.array([b for _, b in pairs], dtype=np.float64)
    assert exact_dot(x, y) == sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))


@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
@settings(max_examples=30)
@given(data=st.data())
def test_dot_product_of_any_two_dtypes(left: type, right: type, data: st.DataObject) -> None:
    x = data.draw(arrays(left, st.integers(0, 12)))
    n = len(x)
    y = data.draw(arrays(right, st.just(n)))
    mask = bytes(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    terms = (
        Fraction(float(a)) * Fraction(float(b)) for a, b, m in zip(x, y, mask, strict=True) if m
    )
    expected = sum(terms, Fraction(0))
    x[np.frombuffer(mask, dtype=np.bool_) == 0] = np.inf
    assert exact_dot(x, y, mask) == expected


@given(st.lists(st.tuples(patterns, patterns), max_size=12))
def test_dot_product_of_bfloat16(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array([p[i] for p in pairs], dtype=np.uint16) for i in (0, 1))
    found = exact_dot(x, y, left_dtype="bfloat16", right_dtype="bfloat16")
    terms = (Fraction(bfloat16(a)) * Fraction(bfloat16(b)) for a, b in pairs)
    assert found == sum(terms, Fraction(0))


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_blocks(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.standard_normal(size) * 2.0 ** rng.integers(-300, 300, size)
    slow = slow_sum(values)
    assert exact_sum(values) == slow
    assert exact_sum(values[::-1]) == slow
    assert exact_sum(rng.permutation(values)) == slow
    assert exact_dot(values, np.ones(size)) == slow
    assert math.fsum(values) == float(slow)


@pytest.mark.parametrize("longest", [3, 40, 3 * BLOCK])
def test_stretches_across_blocks(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lengths = [0, *rng.integers(0, longest, 60 if longest < BLOCK else 2).tolist(), 0, 1, 0]
    masks = [rng.integers(0, 2, n).astype(np.uint8).tobytes() for n in lengths]
    values = rng.standard_normal(sum(lengths)) * 2.0 ** rng.integers(-90, 90, sum(lengths))
    at, expected = 0, []
    for mask in masks:
        kept = values[at : at + len(mask)][np.frombuffer(mask, dtype=np.bool_)]
        expected.append(slow_sum(kept))
        at += len(mask)
    assert masked_sums(read(values), masks) == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(OracleError, match=rf"finite, got {bad} at token 1$"):
        exact_sum(np.array([1.0, bad, math.nan]))
    late = np.zeros(BLOCK + 5)
    late[BLOCK + 3] = bad
    with pytest.raises(OracleError, match=rf"got {bad} at token {BLOCK + 3}$"):
        exact_dot(np.ones(BLOCK + 5), late)


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (np.zeros(2, dtype=np.complex64), None, "float16, float32 or float64, got complex64"),
        (["a"], None, "float16, float32 or float64, got <U1"),
        ([1, 2], None, "float16, float32 or float64, got int64"),
        (np.zeros((2, 2)), None, r"flat array, got shape \(2, 2\)"),
        (np.zeros(2, dtype=np.int64), "bfloat16", "uint16 bit patterns, got int64"),
        (np.zeros(2), "float32", "the array's own float64, got 'float32'"),
    ],
)
def test_unsupported_input(values: Any, dtype: str | None, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        read(values, dtype)


def test_masks_and_factors_must_fit() -> None:
    with pytest.raises(OracleError, match="each of the 2 values, got 1 bytes, the largest 1"):
        exact_sum(np.zeros(2), b"\1")
    with pytest.raises(OracleError, match="got 2 bytes, the largest 49"):
        exact_sum(np.zeros(2), b"11")
    with pytest.raises(OracleError, match="as long as each other: 2, 3"):
        exact_dot(np.zeros(2), np.zeros(3))


def test_all_modes_in_one_pass() -> None:
    step = step_of("110 1; 11+1")
    losses = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 6.0, 7.0], dtype=np.float32)
    together = oracles.scalars(oracles.MODES, step, losses, divisor=4)
    for name, value in together.items():
        divisor = 4 if oracles.MODES[name].needs_divisor else None
        assert value == oracles.scalar(name, step, losses, divisor=divisor)
    assert together["token_sum"] == 25


def test_losses_of_every_kind() -> None:
    step = step_of("101")
    for losses in (
        [Fraction(1, 2), math.nan, Fraction(3, 4)],
        [0.5, math.nan, 0.75],
        [0.5, None, Fraction(3, 4)],
        np.array([0.5, np.inf, 0.75], dtype=np.float16),
        np.array([0x3F00, 0x7FC0, 0x3F40], dtype=np.uint16),
    ):
        dtype = "bfloat16" if getattr(losses, "dtype", None) == np.uint16 else None
        assert oracles.scalar("token_mean", step, losses, dtype=dtype) == Fraction(5, 8)
        assert oracles.scalar_mp("token_mean", step, losses, dtype=dtype) == 0.625
    big = 2**53 + 1
    assert oracles.scalar("token_sum", step, [big, 0, big]) == 2 * big
    assert oracles.scalar("token_sum", step, np.array([big, 0, big])) == 2 * big
