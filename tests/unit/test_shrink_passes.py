"""Leaving parts of a case out: always a valid, smaller case; as far as the finding allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from aggverify.checks import Finding
from aggverify.generation.catalogue import hard_cases
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.oracles import Step
from aggverify.run.search.shrink_passes import MOST, plainer, reduced, smaller
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import format_step, parse_micro_batches, parse_step

ANY = Space(8, 8, 8, cp_kinds=("zigzag", "contiguous", "gathered"), fan_out=True)
SPACE = Space(max_dp=3, max_cp=3, max_microbatches=3, fan_out=True, dtypes=("float32", "float64"))


@settings(max_examples=60)
@given(case=cases(SPACE))
def test_every_candidate_is_smaller_and_keeps_its_samples(case: Case) -> None:
    for candidate in smaller(case):
        assert (candidate.size, candidate.dtype) < (case.size, "g" + case.dtype)
        assert set(candidate.losses) <= set(case.losses)
        assert len(candidate.losses) == candidate.step.num_response_tokens


@settings(max_examples=60)
@given(case=cases(SPACE))
def test_every_plainer_one_has_fewer_losses_or_shared_rollouts_and_is_otherwise_the_same(
    case: Case,
) -> None:
    for candidate in plainer(case):
        assert candidate.size < case.size
        apart = [replace(s, rollout=n) for n, s in enumerate(case.step.samples)]
        steps = (case.step, Step(tuple(apart)))
        assert candidate.step in steps and candidate.layout == case.layout
        assert candidate.losses == case.losses or candidate.step == case.step


def finding(case: Case) -> Finding:
    return Finding("AGV101", "a check", "", case, None)


@pytest.mark.parametrize("case", hard_cases(), ids=str)
def test_what_always_fails_comes_down_to_one_token(case: Case) -> None:
    tried = 0

    def judge(batch: list[Case]) -> list[Finding]:
        nonlocal tried
        tried += len(batch)
        return [finding(c) for c in batch]

    least = reduced(finding(case), judge, ANY).case
    assert least.layout == Layout.trivial(1)
    assert format_step(least.step) in ("1/1", "1/0")
    assert tried <= MOST + 4


def test_what_is_needed_stays() -> None:
    step = parse_step("2/11 3/1; 4/111 1/1")
    case = Case(step, Layout(parse_micro_batches("0,1 | 2,3")), (0.5,) * 7)

    def judge(batch: list[Case]) -> list[Finding | None]:
        return [finding(c) if c.step.num_response_tokens >= 3 else None for c in batch]

    least = reduced(finding(case), judge, replace(ANY, min_world=2)).case
    assert least.layout.dp_size == 2
    assert least.layout.num_microbatches == 1
    assert least.step.num_response_tokens == 3


def test_another_code_is_another_finding() -> None:
    case = hard_cases()[4]

    def judge(batch: list[Case]) -> list[Finding]:
        return [Finding("AGV103", "a check", "", c, None) for c in batch]

    assert reduced(finding(case), judge, ANY).case is case


def test_of_many_samples_half_are_left_out_at_once() -> None:
    many = Case(parse_step("; ".join(["1/1"] * 200)), Layout.trivial(200), (0.0,) * 200)
    tried = 0

    def judge(batch: list[Case]) -> list[Finding | None]:
        nonlocal tried
        tried += len(batch)
        return [finding(c) if len(c.step.samples) >= 23 else None for c in batch]

    assert len(reduced(finding(many), judge, ANY).case.step.samples) == 23
    assert tried <= MOST
