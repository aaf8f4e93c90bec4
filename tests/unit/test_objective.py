"""What a known objective is judged by: value, gradient, and steps of pairs, whole or not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from aggverify.checks.objective import judge_objective
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.oracles import value_and_weights
from aggverify.steps.case import Case, ranks_with_parts
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "pair_logsigmoid(0.1)"))
STEP = parse_step("1/11 1/1; 1/111 1/10")
CASE = Case(STEP, Layout.trivial(4), (1.0, -2.5, 3.0, 0.25, 0.5, 1.5, -1.0, 9.0))
assert SUBJECT.objective is not None
VALUE, WEIGHTS = value_and_weights(SUBJECT.objective, STEP, CASE.losses)
RIGHT = Execution(CASE, np.array([float(w) for w in WEIGHTS]), Fraction(float(VALUE)))


def judged(ran: Execution) -> tuple[str, int | None] | None:
    found = judge_objective("name", SUBJECT, ran)
    return None if found is None else (found.code, found.token)


def test_the_objective_s_own_value_and_gradient_pass() -> None:
    assert judged(RIGHT) is None


@pytest.mark.parametrize("token", [0, 2, 6])
def test_a_gradient_that_is_off_by_little_is_found(token: int) -> None:
    weights = RIGHT.weights
    assert weights is not None
    off = weights.copy()
    off[token] *= 1 + 2.0**-44
    assert judged(replace(RIGHT, weights=off)) == ("AGV101", token)


def test_a_weight_behind_the_mask_is_found() -> None:
    assert RIGHT.weights is not None
    off = RIGHT.weights.copy()
    off[7] = 1e-300
    assert judged(replace(RIGHT, weights=off)) == ("AGV101", 7)


def test_a_value_that_is_off_by_little_is_found() -> None:
    assert RIGHT.value is not None
    assert judged(replace(RIGHT, value=RIGHT.value * (1 + Fraction(1, 1 << 44)))) == (
        "AGV102",
        None,
    )


def test_what_it_compares() -> None:
    assert (SUBJECT.compares, SUBJECT.group_size, SUBJECT.claim.group_size) == (2, 2, None)
    assert SUBJECT.nonlinear and SUBJECT.at_rest.mode == "pair_mean"
    assert "fan-out" not in SUBJECT.features


SPLIT = Space(max_dp=2, max_microbatches=2, min_units=2, group_size=2, split_groups=True)


@given(cases(SPLIT))
def test_pairs_that_are_split(case: Case) -> None:
    assert case in SPLIT and ranks_with_parts(case)
    assert {len(members) for members in case.step.groups.values()} == {2}
