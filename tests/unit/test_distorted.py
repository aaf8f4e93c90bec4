"""Counts that are changed before they divide, told from the weights they leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt

import numpy as np
import pytest

from aggverify.diagnosis import WeightObservation
from aggverify.diagnosis.bugs import bugs_of_parts, known_bug
from aggverify.diagnosis.clues import Clues
from aggverify.diagnosis.distorted import distorted_count
from aggverify.diagnosis.factors import Factor, named_ratio, product_of_sizes
from aggverify.engines import ENGINES
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "sample_mean"))
STEPS = ("1/1", "1/11; 1/1", "1/111 1/1011; 1/11111", "1/1111; 1/1; 1/1111111")


def observed(count: Callable[[int], float], text: str) -> WeightObservation:
    """Weights of a mean over rollouts that divides by ``count(tokens)``."""
    step = parse_step(text)
    case = Case(step, Layout.trivial(len(step.samples)), plain_losses(step))
    weights = [
        bit / (step.num_rollouts * count(s.num_unmasked))
        for s in step.samples
        for bit in s.loss_mask
    ]
    return WeightObservation(case, np.array(weights), SUBJECT.expected(step))


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (lambda n: n + 1, "plus 1"),
        (lambda n: n + 0.5, "plus 0.5"),
        (lambda n: max(n - 1, 1), "minus 1 but at least 1"),
        (lambda n: max(n, 3), "but at least 3"),
        (lambda n: min(n, 4), "but at most 4"),
        (lambda n: 4 * -(-n // 4), "rounded up to a multiple of 4"),
        (lambda n: max(2 * (n // 2), 1), "rounded down to a multiple of 2, at least 1"),
        (lambda n: n**0.5, "to the power of 0.5"),
        (lambda n: n**2, "to the power of 2"),
    ],
)
def test_the_change_is_named(count: Callable[[int], float], words: str) -> None:
    found = distorted_count([observed(count, text) for text in STEPS])
    assert found is not None
    assert found.sentence == f"divides by the unmasked tokens of the sample, {words}"


@pytest.mark.parametrize("count", [lambda n: n * n + 1, lambda n: isqrt(n) + n % 3 + 1])
def test_what_is_none_of_these_is_not_guessed(count: Callable[[int], float]) -> None:
    assert distorted_count([observed(count, text) for text in STEPS]) is None


def test_every_part_of_a_factor_has_its_bug() -> None:
    both = product_of_sizes([("dp_size", -1), ("cp_size", 1)])
    assert both.name == "cp_size/dp_size"
    told = bugs_of_parts(Clues("token_mean", ENGINES["sum"], factor=both))
    assert [b.name for b in told] == ["dp-scaling-missing", "cp-counted-twice"]
    assert bugs_of_parts(Clues("token_mean", ENGINES["sum"], factor=Factor("7", "seven"))) == ()


@pytest.mark.parametrize(
    ("engine", "bug"),
    [("megatron-sample", "rollouts-divided-twice"), ("sum", None), ("megatron-token", None)],
)
def test_an_engine_is_known_by_what_it_does_and_not_by_its_name(
    engine: str, bug: str | None
) -> None:
    own = replace(ENGINES[engine], name="module:OBJECT")  # type: ignore[type-var]
    told = known_bug(Clues("sample_mean", own, factor=product_of_sizes([("N", -1)])))
    assert (told.name if told else None) == bug


def test_the_names_of_the_step_are_used_for_numbers() -> None:
    step = parse_step("1/1 1/11 1/1; 1/11111; 1/1 1/1 1/1 1/1")
    layout = Layout(parse_micro_batches("0,1,2,3,4,5,6,7"))
    case = Case(step, layout, plain_losses(step))
    small = Case(parse_step("1/1"), Layout.trivial(1), (1.0,))
    mid = Case(parse_step("1/1 1/1 1/1"), Layout.trivial(3), (1.0,) * 3)
    cases = [WeightObservation(c, np.ones(1), None) for c in (case, small, mid)]
    ratios = [c.case.step.num_rollouts / (2 * c.case.step.num_groups) for c in cases]
    found = named_ratio(SUBJECT.claiming(mode="prompt_mean"), cases, ratios)
    assert found is not None
    assert found.name == "N/(2*P)"
    assert found.sentence.endswith("that is N/(P*G) with G = 2")
    constant = SUBJECT.claiming(mode="constant", divisor=16.0)
    longest = [16 / max(s.response_length for s in c.case.step.samples) for c in cases]
    assert (used := named_ratio(constant, cases, longest)) is not None
    assert used.name == "L/max_len"
