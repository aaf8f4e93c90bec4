"""The reported loss: what dense losses hide, one loss alone shows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from aggverify.checks import logs
from aggverify.checks.comparison import scalar_mismatch
from aggverify.checks.scalar import CHECK, probe
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import as_run_spec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import hard_cases, plain_losses
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.oracles import Sample, Step
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests.choosing import LATER

SUBJECT = Subject.of(Claim("f.py", "reduce", "native", "sum", "token_mean"))
MILLION = 1_000_000


def trivial(step: Step, losses: tuple[float, ...], dtype: str = "float64") -> Case:
    return Case(step, Layout.trivial(len(step.samples)), losses, dtype)


def executed(case: Case, factor: float = 1.0) -> Execution:
    """What a right reducer replies, its reported loss times ``factor``."""
    weights = np.array([float(w) for w in SUBJECT.expected(case.step) or ()])
    total = sum(
        (Fraction(w) * Fraction(x) for w, x in zip(weights, case.losses, strict=True) if w),
        Fraction(0),
    )
    return Execution(case, weights, total * Fraction(factor))


@given(case=cases(Space(fan_out=True, needs_hole=True)))
def test_a_probe_leaves_one_unmasked_loss(case: Case) -> None:
    sparse = probe(case)
    behind = set(case.masked_tokens())
    alone = [x for t, x in enumerate(sparse.losses) if x and t not in behind]
    assert len(alone) == (1 if len(behind) < len(case.losses) else 0)
    assert all(sparse.losses[t] == case.losses[t] for t in behind)


def test_a_step_without_unmasked_tokens_has_no_probe() -> None:
    case = trivial(parse_step("1/00"), (1.0, 2.0))
    assert probe(case) == case


@pytest.mark.thorough
@pytest.mark.parametrize("delta", [1e-4, LATER(-1e-4)])
def test_a_million_float32_tokens_hide_what_one_alone_shows(delta: float) -> None:
    step = Step((Sample(1, b"\1" * MILLION, 0, 0),))
    dense = trivial(step, (1.0,) * MILLION, "float32")
    weights = (Fraction(1, MILLION),) * MILLION
    wrong = 1 + Fraction(delta)
    assert scalar_mismatch(SUBJECT, dense, wrong, weights) is None
    sparse = probe(dense)
    found = scalar_mismatch(SUBJECT, sparse, wrong / MILLION, weights)
    assert found is not None
    assert found.exact == Fraction(1, MILLION)


@pytest.mark.parametrize(("dtype", "delta"), [("float32", 1e-4), ("float64", 1e-10)])
def test_a_wrong_reported_loss_is_found_and_a_right_one_is_not(dtype: str, delta: float) -> None:
    case = trivial(parse_step("1/1101 2/111; 3/1"), (0.5, 1.0, -1.0, 2.0, 0.25, 3.0, 1.0, -2.0))
    case = Case(case.step, case.layout, case.losses, dtype)
    dense, sparse = (as_run_spec(each).case for each in CHECK.variants(case))
    assert sparse == probe(dense)
    assert CHECK.judge(SUBJECT, [executed(c) for c in (dense, sparse)]) is None
    found = CHECK.judge(SUBJECT, [executed(dense), executed(sparse, 1 + delta)])
    assert found is not None
    assert (found.code, found.reference) == ("AGV102", "the oracle")


def test_large_losses_and_one_alone_are_tried_in_turn() -> None:
    for text, dtype, is_large in (
        ("1/11", "float64", False),
        ("1/1", "float64", True),
        ("1/111", "bfloat16", True),
        ("1/111", "float16", False),
        ("1/1 1/11", "float16", False),
    ):
        step = parse_step(text)
        case = trivial(step, plain_losses(step), dtype)
        dense, other = (as_run_spec(each).case for each in CHECK.variants(case))
        assert dense == case
        if is_large:
            assert max(other.losses) > float(np.finfo(np.float16).max)
        else:
            assert other == probe(case)
    numbers = (len(case.step.samples) + case.step.num_response_tokens for case in hard_cases())
    assert {n % 2 for n in numbers} == {0, 1}


def test_where_the_weights_are_wrong_the_gradient_is_the_reference() -> None:
    case = trivial(parse_step("1/11"), (1.0, 3.0))
    wrong = np.array([0.25, 0.25])  # half the mode's: another check's finding
    assert CHECK.judge(SUBJECT, [Execution(case, wrong, Fraction(1))]) is None
    found = CHECK.judge(SUBJECT, [Execution(case, wrong, Fraction(3))])
    assert found is not None
    assert found.reference == "the gradient"


def test_a_loss_that_is_the_modes_is_believed_where_the_update_is_wrong() -> None:
    case = trivial(parse_step("1/11"), (1.0, 3.0))
    wrong = np.array([0.25, 0.25])
    assert CHECK.judge(SUBJECT, [Execution(case, wrong, Fraction(2))]) is None
    no_keys = [Execution(case)] * 3
    for value, code in ((2.0, None), (3.0, "AGV511")):
        logged = ((((("loss", (value,)),)),),)
        ran = Execution(case, wrong, Fraction(1), counts=(0,), logs=logged)
        told = logs.CHECK.judge(SUBJECT, [ran, *no_keys])
        assert (told and told.code) == code


def test_a_reported_loss_that_is_not_finite_is_told() -> None:
    case = trivial(parse_step("1/11"), (1.0, 3.0))
    found = CHECK.judge(SUBJECT, [Execution(case, np.array([0.5, 0.5]), None)])
    assert found is not None
    assert "not" in found.message


def test_the_tally_says_what_could_have_been_caught() -> None:
    step = parse_step("1/11 1/1")
    dense, cancelling = trivial(step, (1.0, 2.0, 3.0)), trivial(step, (1.0, -3.0, 2.0))
    statistics = RunStatistics()
    passed = [executed(dense), executed(cancelling), executed(probe(dense))]
    statistics.add(SUBJECT, passed, scalars=True)
    (margin,) = statistics.margins(SUBJECT)
    loss = margin.reported_loss
    assert (margin.dtype, loss.dense_steps, loss.vacuous_steps) == ("float64", 2, 1)
    assert 0 < loss.smallest_caught_alone < loss.smallest_caught_dense < 1e-14
    assert 0 < margin.worst_error_over_bound < 1


def test_a_vacuous_weight_bound_is_infinite() -> None:
    step = Step((Sample(1, b"\1" * 3, 0, 0),))
    # 1 / 2^26 is below float16's subnormal numbers: any weight would do.
    tiny = Subject.of(Claim("f.py", "reduce", "native", "sum", "constant", divisor=2.0**26))
    statistics = RunStatistics()
    statistics.add(
        tiny, [Execution(trivial(step, (1.0,) * 3, "float16"), np.zeros(3), Fraction(0))]
    )
    (margin,) = statistics.margins(tiny)
    assert math.isinf(margin.smallest_caught)
