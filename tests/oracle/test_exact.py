"""Exact sums equal Fraction arithmetic on everything Hypothesis finds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oracles
from aggverify.notation import parse_step
from oracles import OracleError
from oracles.exact import BLOCK, as_float64, exact_sum

any_float = st.floats(allow_nan=False, allow_infinity=False)
awkward = st.sampled_from(
    (
        *(0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1e-308, 1e308, -1e308, 1.7976931348623157e308),
        *(1.0, 2.0**53, -(2.0**53), 1 + 2.0**-52, 2.0**960, -(2.0**961)),
    )
)


def slow(values: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) for x in values), Fraction(0))


@given(st.lists(any_float | awkward, max_size=40))
def test_float64(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    assert exact_sum(array) == slow(array)


@given(st.lists(awkward | any_float, max_size=20), st.randoms())
def test_total_cancellation_in_any_order(values: list[float], rng: object) -> None:
    both = values + [-x for x in values]
    rng.shuffle(both)  # type: ignore[attr-defined]
    assert exact_sum(np.array(both, dtype=np.float64)) == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(data=st.data())
def test_other_dtypes(dtype: type, data: st.DataObject) -> None:
    finite = {"allow_nan": False, "allow_infinity": False}
    values = data.draw(hnp.arrays(dtype, st.integers(0, 30), elements=finite))
    assert exact_sum(as_float64(values)) == slow(values)


@given(st.lists(st.integers(0, 0xFFFF).filter(lambda b: b & 0x7F80 != 0x7F80), max_size=30))
def test_bfloat16_bit_patterns(bits: list[int]) -> None:
    values = [math.ldexp((b & 0x7F) + 128, (b >> 7 & 0xFF) - 134) for b in bits]
    values = [
        v if b & 0x7F80 else math.ldexp(b & 0x7F, -133) for v, b in zip(values, bits, strict=True)
    ]
    signed = [-v if b & 0x8000 else v for v, b in zip(values, bits, strict=True)]
    found = exact_sum(as_float64(np.array(bits, dtype=np.uint16), "bfloat16"))
    assert found == slow(np.array(signed, dtype=np.float64))


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_blocks(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.standard_normal(size) * 2.0 ** rng.integers(-300, 300, size)
    assert exact_sum(values) == slow(values)
    assert float(exact_sum(values)) == math.fsum(values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(OracleError, match="finite, got"):
        exact_sum(np.array([1.0, bad]))


def test_unsupported_input() -> None:
    with pytest.raises(OracleError, match="more precision than float64"):
        as_float64(np.zeros(2, dtype=np.longdouble))
    with pytest.raises(OracleError, match="got an array of"):
        as_float64(["a"])
    with pytest.raises(OracleError, match="uint16 bit patterns, got int64"):
        as_float64(np.zeros(2, dtype=np.int64), "bfloat16")


def test_all_modes_in_one_pass() -> None:
    step = parse_step("2/110 3/1; 1/11+4/1")
    losses = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 6.0, 7.0], dtype=np.float32)
    together = oracles.scalars(list(oracles.MODES), step, losses, divisor=4)
    for name, value in together.items():
        divisor = 4 if oracles.MODES[name].needs_divisor else None
        assert value == oracles.scalar(name, step, losses, divisor=divisor)
    assert together["token_sum"] == 25


def test_rational_losses() -> None:
    step = parse_step("1/101")
    losses = [Fraction(1, 3), Fraction(1, 7), Fraction(1, 6)]
    assert oracles.scalar("token_mean", step, losses) == Fraction(1, 4)
