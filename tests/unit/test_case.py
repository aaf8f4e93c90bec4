"""Cases as JSON, both ways, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggverify.checks.poison import poisoned
from aggverify.errors import InputError
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import format_step, parse_micro_batches, parse_step

WIDE = Space(
    max_dp=4,
    max_cp=4,
    max_microbatches=3,
    cp_kinds=("zigzag", "contiguous", "gathered"),
    fan_out=True,
    dtypes=("float64", "float32"),
)


@given(cases(WIDE))
def test_json_round_trip(case: Case) -> None:
    text = json.dumps(case.to_json(), allow_nan=False)
    assert Case.from_json(json.loads(text)) == case


def test_poison_survives_json() -> None:
    step = parse_step("1/1001")
    case = poisoned(Case(step, Layout.trivial(1), (0.5, 0.0, 0.0, 0.25)))
    back = Case.from_json(json.loads(json.dumps(case.to_json(), allow_nan=False)))
    assert math.isnan(back.losses[1])
    assert back.losses[2] == math.inf
    assert back.losses[::3] == (0.5, 0.25)


@pytest.mark.parametrize("values", [(1.0,), (0.5, math.inf, -2.0)])
def test_long_losses_are_written_as_runs(values: tuple[float, ...]) -> None:
    step = Step(tuple(Sample(1, b"\1" * 5000, r, 0) for r in range(len(values))))
    losses = tuple(x for x in values for _ in range(5000))
    case = Case(step, Layout.trivial(len(values)), losses)
    text = json.dumps(case.to_json(), allow_nan=False)
    assert len(text) < 500
    assert Case.from_json(json.loads(text)) == case


def test_losses_written_once_are_still_read() -> None:
    assert Case.from_json(small() | {"losses": {"all": 0.5}}).losses == (0.5,) * 3


def small() -> dict[str, Any]:
    step = parse_step("1/1 2/11")
    return Case(step, Layout((((0,), (1,)),)), (0.0, 1.0, 2.0)).to_json()


def test_a_shrunk_case_is_small() -> None:
    assert len(json.dumps(small())) <= 2048


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "case schema must be 1, got 2"),
        ({"dtype": "float46"}, "did you mean 'float64'"),
        ({"losses": [0.0]}, "3 tokens, got 1 losses"),
        ({"losses": [0.0, True, 1.0]}, "got True"),
        ({"losses": [0.0, "NaN", 1.0]}, "got 'NaN'"),
        ({"losses": "abc"}, "losses must be a list"),
        ({"layout": {"cp": 1, "kind": "zigzag"}}, "the layout lacks micro_batches"),
        ({"layout": {"cp": 1, "kind": "zigzag", "micro_batches": [[[0, -1]]]}}, "got -1"),
        ({"layout": {"cp": 1, "kind": "zigzag", "micro_batches": [[[0]]]}}, "exactly once"),
        ({"step": {"samples": [{"prompt": -1, "mask": "1", "rollout": 0, "group": 0}]}}, "-1"),
        ({"step": {}}, "not a step"),
    ],
)
def test_bad_cases_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Case.from_json(small() | change)


def test_a_case_is_an_object() -> None:
    with pytest.raises(InputError, match="a case is a JSON object, got list"):
        Case.from_json([])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lacks dtype, losses"):
        Case.from_json({"schema": 1, "step": {}, "layout": {}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values, st.sampled_from(["schema", "step", "layout", "losses", "dtype"]))
def test_hostile_json_is_refused_or_equal(value: object, key: str) -> None:
    data = small() | {key: value}
    try:
        case = Case.from_json(data)
    except InputError:
        return
    assert case.to_json() == data


def test_notation() -> None:
    step = parse_step("2/110 3/1; 1/11+4/1")
    assert [s.prompt_length for s in step.samples] == [2, 3, 1, 4]
    assert [bytes(s.loss_mask) for s in step.samples] == [b"\1\1\0", b"\1", b"\1\1", b"\1"]
    assert [(s.rollout, s.group) for s in step.samples] == [(0, 0), (1, 0), (2, 1), (2, 1)]
    assert format_step(step) == "2/110 3/1; 1/11+4/1"
    assert parse_micro_batches("0,1 2 | 3 4") == (((0, 1), (2,)), ((3,), (4,)))


@given(cases(WIDE))
def test_notation_round_trip(case: Case) -> None:
    assert parse_step(format_step(case.step)) == case.step


@pytest.mark.parametrize("text", ["", "2/", "2/12", "a/1", "1/1+", "-1/1"])
def test_bad_notation_shows_the_part(text: str) -> None:
    with pytest.raises(InputError, match=r"no sample|not a sample"):
        parse_step(text)


def test_nan_of_either_sign_is_one_run() -> None:
    losses = (math.copysign(math.nan, -1.0), math.nan, *(0.5,) * 100)
    step = parse_step(f"1/{'1' * 102}")
    case = Case(step, Layout.trivial(1), losses)
    again = Case.from_json(json.loads(json.dumps(case.to_json())))
    assert again.to_json() == case.to_json()
    assert case.to_json()["losses"] == {"runs": [["nan", 2], [0.5, 100]]}


@given(cases(Space(max_dp=2, max_cp=2, max_microbatches=2, fan_out=True, rejects=True)))
def test_the_ranks_read_the_case_that_was_sent(case: Case) -> None:
    assert Case.unpacked(json.loads(json.dumps(case.packed()))) == case


def test_a_step_with_other_losses_is_read_once() -> None:
    step = parse_step("1/1101 1/11")
    one = Case(step, Layout.trivial(2), (0.5,) * 6)
    other = Case(step, Layout.trivial(2), (1.5,) * 6, "bfloat16")
    read = [Case.unpacked(json.loads(json.dumps(case.packed()))) for case in (one, other)]
    assert read == [one, other]
    assert read[0].step is read[1].step


def test_zeros_of_both_signs_and_nan_reach_the_ranks_as_they_are() -> None:
    step, layout = parse_step("1/1"), Layout.trivial(1)
    for loss in (0.0, -0.0, math.nan, math.inf):
        (read,) = Case.unpacked(Case(step, layout, (loss,)).packed()).losses
        assert math.isnan(read) if math.isnan(loss) else repr(read) == repr(loss)
