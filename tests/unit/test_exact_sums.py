"""What the parent computes of every case, in a quicker way than the plain one: the same number."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggverify.checks.comparison import as_floats
from aggverify.engines import engine
from aggverify.engines.emulated import EmulatedEngine
from aggverify.engines.spec import Sizes
from aggverify.execution.executed import exact_sum

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(FINITE, max_size=8))
def test_a_sum_of_floats_is_exact(numbers: list[float]) -> None:
    assert exact_sum(numbers) == sum(map(Fraction, numbers), Fraction(0))


@pytest.mark.parametrize("name", ["sum", "accumulated-mean", "megatron-token", "areal"])
def test_an_engine_that_adds_up_may_be_given_the_sum(name: str) -> None:
    spec, sizes = engine(name), Sizes(2, 1, 2, 3)
    assert isinstance(spec, EmulatedEngine)
    losses, counts = [Fraction(n, 8) for n in (1, 5, 7, 2)], [1, 2, 3, 4]
    whole = spec.value(losses, counts, sizes)
    same = spec.value([sum(losses, Fraction(0))], counts, sizes) == whole
    assert same == spec.adds_up == (name != "areal")


def test_weights_that_are_kept_as_floats_are_those_asked_for() -> None:
    one, other = (Fraction(1, 3), Fraction(0)), (Fraction(2, 3), Fraction(0))
    first = as_floats(one)
    assert first.tolist() == [1 / 3, 0.0] and as_floats(one) is first
    assert as_floats(other).tolist() == [2 / 3, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1.0
    changing = [Fraction(1)]
    assert as_floats(changing).tolist() == [1.0]
    changing[0] = Fraction(2)
    assert as_floats(changing).tolist() == [2.0]
