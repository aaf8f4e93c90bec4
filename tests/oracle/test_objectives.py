"""Objectives that are not linear: published numbers, the derivative of the value, rationals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp

from aggverify.oracles import OBJECTIVES, OracleError, Policy, objective, value_and_weights
from aggverify.oracles.evaluate import unmasked_sums
from aggverify.oracles.objectives import arguments
from tests.oracle.drawing import step_of

F = Fraction
STEP = step_of("11 1; 111 10")
INPUTS = [F(n, 7) for n in (1, -2, 3, -4, 5, 6, -7, 8)]


@pytest.mark.parametrize(
    ("name", "value", "slope"),
    [  # ms-swift #10167: one token a completion, beta 0.1, a margin of 6
        ("dpo(0.1)", 0.437488, -0.035434),
        ("ipo(0.1)", 1.0, 2.0),
    ],
)
def test_published_numbers(name: str, value: float, slope: float) -> None:
    found = objective(name)
    assert found is not None
    total, weights = value_and_weights(found, step_of("1 1"), [4.0, -2.0])
    assert [round(float(x), 6) for x in (total, *weights)] == [value, slope, -slope]


def test_four_pairs_where_the_policy_is_the_reference() -> None:
    # ms-swift #10144: the loss is log(2), and the gradient by each token half of beta over 4
    found = objective("pair_logsigmoid(1/10)")
    assert found is not None
    total, weights = value_and_weights(found, step_of("1 1; 1 1; 1 1; 1 1"), [0.0] * 8)
    assert float(total) == float(mp.log(2))
    assert [float(w) for w in weights] == [-0.0125, 0.0125] * 4


@pytest.mark.parametrize("sequence", ["sum", "mean"])
@pytest.mark.parametrize("name", [*OBJECTIVES, "dpo(0.1)"])
def test_weights_are_the_derivative_of_the_value(name: str, sequence: Any) -> None:
    found, policy = objective(name), Policy(sequence=sequence)
    assert found is not None
    _, weights = value_and_weights(found, STEP, INPUTS, policy=policy)

    def value(token: int, x: Any) -> Any:
        moved = [mp.mpf(v.numerator) / v.denominator for v in INPUTS]
        moved[token] = x
        kept = iter(moved)
        sums = [
            mp.fsum(x for bit in s.loss_mask for x in [next(kept)] if bit) for s in STEP.samples
        ]
        units = found.units(STEP, policy)
        terms = (
            found.term(mp.fsum(sums[i] * t.numerator / t.denominator for i, t in parts))
            for parts in units
        )
        return mp.fsum(terms) / found.number(STEP, policy)

    with mp.workdps(40):
        for token, weight in enumerate(weights):
            at = mp.mpf(INPUTS[token].numerator) / INPUTS[token].denominator
            slope = mp.diff(lambda x, t=token: value(t, x), at)
            assert abs(slope - mp.mpf(weight.numerator) / weight.denominator) < mp.mpf(10) ** -30


def test_a_square_is_rational() -> None:
    found = objective("ipo(1/2)")
    assert found is not None
    total, weights = value_and_weights(found, step_of("11 1; 1 1"), [1, 2, 4, 0, 5])
    assert abs(total - F((-2) ** 2 + (-6) ** 2, 2)) < F(1, 1 << 200)
    assert [round(w) for w in weights] == [-2, -2, 2, -6, 6]


def test_sums_and_means_of_pairs_and_rollouts() -> None:
    pairs, rollouts = objective("dpo"), objective("gspo")
    assert pairs is not None and rollouts is not None
    sums = unmasked_sums(STEP, [1, 2, 3, 4, 5, 6, 7, 8])
    assert arguments(pairs.units(STEP, Policy()), sums) == [0, 8]
    assert arguments(pairs.units(STEP, Policy(sequence="mean")), sums) == [F(-3, 2), -2]
    assert arguments(rollouts.units(STEP, Policy()), sums) == [F(3, 2), 3, 5, 7]


def test_an_empty_rollout_counts_or_not() -> None:
    step, found = step_of("11; 00"), objective("sequence_ratio")
    assert found is not None
    without = Policy(empty_units="exclude")
    values = [value_and_weights(found, step, [0] * 4, policy=p)[0] for p in (Policy(), without)]
    assert [float(v) for v in values] == [-1.0, -1.0]
    assert [found.number(step, p) for p in (Policy(), without)] == [2, 1]


@pytest.mark.parametrize("name", ["token_mean", "nonlinear", "pair_mean", "dpo(x)", ""])
def test_what_is_no_objective(name: str) -> None:
    assert objective(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dpo(0)", "beta of pair_logsigmoid must be above 0, got 0"),
        ("ipo(-1)", "beta of pair_squared must be above 0, got -1"),
        ("gspo(2)", "sequence_ratio takes no parameter, got 2"),
        ("dpo(1/0)", "the parameter of a mode must be a number"),
    ],
)
def test_an_objective_that_cannot_be_formed(name: str, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        objective(name)
