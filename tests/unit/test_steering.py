"""What has not run of a reducer's conditions decides which cases are made next."""

from __future__ import annotations

import pytest

from aggverify.generation.space import Space
from aggverify.generation.steering import of_kind, steered
from aggverify.steps import case_tags
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.conditions import Condition

WIDE = Space(
    max_dp=8, max_cp=4, max_microbatches=130, lengths=(1,), holes=True, fan_out=True,
    dtypes=("float64", "bfloat16", "float16"),
)  # fmt: skip
STEP = parse_step("2/111111 3/11; 1/1")
CASE = Case(STEP, Layout.trivial(3), (0.5,) * 9)
LONG = Condition("reduce", 4, "n > LIMIT", (300,), 5, 6)


@pytest.mark.parametrize("kind", [k for k in case_tags.TAGS if k != case_tags.SHARDED])
def test_a_case_becomes_one_of_that_kind_and_nothing_else(kind: str) -> None:
    made = of_kind(WIDE, CASE, kind)
    assert made is not None and made in WIDE
    before, after = (
        set(case_tags.decode(case_tags.tags(CASE))),
        set(case_tags.decode(case_tags.tags(made))),
    )
    assert kind in after
    assert before - {case_tags.ONE_RANK} <= after
    assert after - before <= {kind, case_tags.SHARDED}


def test_a_condition_that_was_never_true_has_cases_around_its_numbers_in_turn_with_the_rest() -> (
    None
):
    every = case_tags.encode(["one rank", "several ranks", "data parallel"])
    ran = {0: every, 2: every, 3: case_tags.encode(["one rank"])}
    other = Condition("reduce", 8, "flag", (), 9, 10)
    cases = list(steered(WIDE, [LONG, other], [77], ran, {0: CASE, 2: CASE, 3: CASE}))
    assert len(set(cases)) == len(cases) > 20
    first, second = cases[:2]
    assert max(s.response_length for s in first.step.samples) == 301
    assert second.layout.dp_size == 2 and second.step.samples[:3] == STEP.samples
    assert not any(s.response_length == 78 for c in cases for s in c.step.samples)
    unnamed = steered(WIDE, [other], [77], {0: every}, {0: CASE})
    assert max(s.response_length for s in next(unnamed).step.samples) == 78


def test_nothing_is_made_where_everything_ran_on_every_kind() -> None:
    every = case_tags.encode(case_tags.TAGS)
    assert list(steered(WIDE, [LONG], [], {0: every, 1: every}, {0: CASE, 1: CASE})) == []
