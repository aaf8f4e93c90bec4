"""What matters is told by varying it, one field at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from aggverify.checks import Finding
from aggverify.generation.space import Space
from aggverify.run.outcome.verdict import Relevance
from aggverify.run.search.relevance import LOSS_VALUES, relevance, variations
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

STEP = parse_step("1/1 1/11")
CASE = Case(STEP, Layout(parse_micro_batches("0 1")), (0.0,) * 3)
SPACE = Space(max_dp=4, max_cp=4, max_microbatches=4, cp_kinds=("zigzag",))


def finding(case: Case, code: str = "AGV202") -> Finding:
    return Finding(code, "independent_of_micro_batches", "", case, "token_mean")


def test_a_field_matters_when_another_value_makes_the_finding_go() -> None:
    def judge(cases: Sequence[Case]) -> list[Finding | None]:
        return [finding(c) if c.layout.num_microbatches > 1 else None for c in cases]

    found = relevance(finding(CASE), SPACE, judge)
    assert found.matters == ("micro-batches",)
    assert set(found.irrelevant) == {
        *("dtype", "loss values", "prompt lengths", "prompt groups", "cp_size")
    }


def test_another_code_is_another_finding() -> None:
    def judge(cases: Sequence[Case]) -> list[Finding | None]:
        return [finding(c, "AGV202" if c.dtype == "float64" else "AGV401") for c in cases]

    assert relevance(finding(CASE), SPACE, judge).matters == ("dtype",)


def test_nothing_is_run_that_the_claims_exclude() -> None:
    seen: list[Case] = []

    def judge(cases: Sequence[Case]) -> list[Finding | None]:
        seen.extend(cases)
        return [None for _ in cases]

    narrow = replace(SPACE, max_cp=1, whole_groups=True)
    apart = replace(CASE, step=parse_step("1/1; 1/11"))
    assert "cp_size" not in relevance(finding(apart), narrow, judge).matters
    assert all(case.layout.cp_size == 1 and case.step.num_groups == 2 for case in seen)


def test_a_hang_is_not_repeated() -> None:
    def never(cases: Sequence[Case]) -> list[Finding | None]:
        raise AssertionError(cases)

    assert relevance(finding(CASE, "AGV402"), SPACE, never) == Relevance()


def test_another_factor_is_no_longer_the_same_finding() -> None:
    def judge(cases: Sequence[Case]) -> list[Finding | None]:
        return [weighing(case, case.step.samples[0].prompt_length) for case in cases]

    found = relevance(weighing(CASE, 1), SPACE, judge)
    assert found.matters == ("prompt lengths",)
    assert "dtype" in found.irrelevant


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        (1.5, 1.5, True),
        (1.5, 1.5 + 2**-20, True),  # as much as another dtype rounds
        (1.5, 1.5 - 2**-20, True),
        (-1.5, -1.5 - 2**-20, True),
        (1.5, 1.52, False),
        (1.5, 1.48, False),
        (1.5, -1.5, False),
        (2000.0, 2001.0, True),
        (0.0, 0.0, True),
        (0.0, 2**-20, False),
        (math.inf, math.inf, True),
        (math.nan, math.inf, True),  # neither has a factor
        (math.nan, 1.5, False),
        (1.5, math.inf, False),
    ],
)
def test_factors_are_alike_up_to_roundings(was: float, now: float, same: bool) -> None:
    def judge(cases: Sequence[Case]) -> list[Finding | None]:
        return [weighing(case, now) for case in cases]

    found = relevance(weighing(CASE, was), SPACE, judge)
    assert (found.matters == ()) == same
    assert (found.irrelevant == ()) == (not same)


def test_a_token_that_weighs_nothing_has_no_factor() -> None:
    def judge(cases: Sequence[Case]) -> list[Finding | None]:
        return [replace(weighing(case, 7), expected=(Fraction(0),) * 3) for case in cases]

    nothing = replace(weighing(CASE, 3), expected=(Fraction(0),) * 3)
    assert relevance(nothing, SPACE, judge).matters == ()


def test_other_slices_are_tried_where_there_are_slices() -> None:
    space = replace(SPACE, cp_kinds=("zigzag", "contiguous"))
    sliced = CASE.with_layout(replace(CASE.layout, cp_size=2))
    kinds = [c.layout.cp_kind for name, c in variations(sliced, space) if name == "cp kind"]
    assert kinds == ["contiguous"]
    assert "cp kind" not in dict(variations(CASE, space))
    sizes = {c.layout.cp_size for name, c in variations(sliced, space) if name == "cp_size"}
    assert sizes == {1, 3}


def test_two_longer_prompts_are_tried() -> None:
    varied = [c.step for name, c in variations(CASE, SPACE) if name == "prompt lengths"]
    lengths = [[s.prompt_length for s in step.samples] for step in varied]
    assert lengths == [[2, 2], [5, 5]]


def weighing(case: Case, factor: float) -> Finding:
    weights = (factor / 4,) * 3
    return replace(finding(case), expected=(Fraction(1, 4),) * 3, observed=weights, token=0)


def test_ranks_are_joined_with_their_micro_batches_as_they_are() -> None:
    case = CASE.with_layout(Layout(parse_micro_batches("0 | 1")))
    varied = [c for name, c in variations(case, SPACE) if name == "dp_size"]
    assert [c.layout.micro_batches for c in varied] == [(((0, 1),),)]


def test_linearity_varies_the_losses_itself() -> None:
    told = relevance(finding(CASE, "AGV131"), SPACE, lambda cases: [None for _ in cases])
    assert LOSS_VALUES not in (*told.matters, *told.irrelevant)
