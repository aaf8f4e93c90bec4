"""What a step may be, and what is said when it is not."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from aggverify.oracles import OracleError, Sample, Step
from tests.oracle.drawing import step_of, steps


@pytest.mark.parametrize(
    "mask",
    [
        (1, 0, 1),
        [True, False, True],
        [1.0, 0.0, 1.0],
        b"\1\0\1",
        bytearray(b"\1\0\1"),
        np.array([1, 0, 1]),
        np.array([True, False, True]),
        np.array([1, 0, 1], dtype=np.float32),
        np.array([1, 9, 0, 9, 1, 9], dtype=np.uint8)[::2],
    ],
)
def test_masks_of_every_kind_are_kept_as_bytes(mask: Any) -> None:
    sample = Sample(np.int64(2), mask, 0, 0)  # type: ignore[arg-type]
    assert sample.loss_mask == b"\1\0\1"
    assert type(sample.loss_mask) is bytes and type(sample.prompt_length) is int
    assert (sample.response_length, sample.num_unmasked, sample.num_original) == (3, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, (1,), 0, 0), "prompt_length must be a non-negative integer, got -1"),
        ((1.5, (1,), 0, 0), "got 1.5"),
        (("1", (1,), 0, 0), "got '1'"),
        ((1, (1, 2), 0, 0), "loss_mask must hold 0 and 1 only, got 2"),
        ((1, (1, 0.5), 0, 0), "0 and 1 only, got 0.5"),
        ((1, (1, float("nan")), 0, 0), "0 and 1 only, got nan"),
        ((1, b"\1\7", 0, 0), "0 and 1 only, got 7"),
        ((1, b"11", 0, 0), "0 and 1 only, got 49"),
        ((1, ((1,), (0,)), 0, 0), "flat sequence"),
        ((1, ((1,), (0, 1)), 0, 0), "flat sequence"),
        ((1, "10", 0, 0), "flat sequence"),
        ((1, 1, 0, 0), "flat sequence"),
        ((1, (1,), -1, 0), "rollout must be a non-negative integer, got -1"),
        ((1, (1,), 0, True), "group must be a non-negative integer, got True"),
        ((1, (1,), 0, 0, (1, 1)), "original_mask must have the loss_mask's 1 tokens, got 2"),
        ((1, (1,), 0, 0, (3,)), "original_mask must hold 0 and 1 only, got 3"),
        ((1, (0, 1, 1), 0, 0, (1, 0, 1)), "token 1 is unmasked in loss_mask 011 and masked in"),
    ],
)
def test_bad_samples(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OracleError, match=message):
        Sample(*arguments)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ((), "at least one sample, got none"),
        ((3,), "Sample objects, got 3"),
        (3, "Sample objects, got 3"),
        ((Sample(1, (1,), 4, 0), Sample(1, (1,), 4, 1)), "rollout 4 belongs .* groups 0 and 1"),
    ],
)
def test_bad_steps(samples: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        Step(samples)


def test_what_follows_from_the_samples() -> None:
    step = Step(
        [  # type: ignore[arg-type]
            Sample(0, (1, 0), 7, 3),
            Sample(5, (), 2, 9),
            Sample(1, (1, 1), 7, 3, original_mask=(1, 1)),
            Sample(1, (0,), 1, 3, original_mask=(1,)),
        ]
    )
    assert step.rollouts == {7: (0, 2), 2: (1,), 1: (3,)}
    assert step.groups == {3: (0, 2, 3), 9: (1,)}
    assert (step.num_rollouts, step.num_groups) == (3, 2)
    assert (step.num_response_tokens, step.num_unmasked) == (5, 3)
    assert step.offsets == (0, 2, 2, 4)
    assert [s.num_original for s in step.samples] == [1, 0, 2, 1]


def test_steps_are_values() -> None:
    step = step_of("110+1 0; 1")
    assert step == step_of("110+1 0; 1") and hash(step) == hash(step_of("110+1 0; 1"))
    assert step != step_of("110+1 0; 0")
    assert pickle.loads(pickle.dumps(step)) == step
    changed = replace(step.samples[0], loss_mask=b"\0\0\0")
    assert (changed.num_unmasked, changed.rollout) == (0, 0)
    with pytest.raises(FrozenInstanceError):
        step.samples[0].rollout = 3  # type: ignore[misc]


@given(steps())
def test_json_round_trip(step: Step) -> None:
    assert Step.from_json(step.to_json()) == step


def test_json_is_plain_and_short() -> None:
    step = Step((Sample(1, (1, 0), 0, 0, original_mask=(1, 1)), Sample(0, (1,), 1, 0)))
    assert step.to_json() == {
        "samples": [
            {"prompt": 1, "mask": "10", "rollout": 0, "group": 0, "original": "11"},
            {"prompt": 0, "mask": "1", "rollout": 1, "group": 0},
        ]
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "not a step: {} .*samples"),
        (3, "not a step: 3"),
        ({"samples": 3}, "not a step"),
        ({"samples": [3]}, "not a step"),
        ({"samples": []}, "at least one sample"),
        ({"samples": [{"prompt": 1, "mask": "10"}]}, "not a step: .*rollout"),
        ({"samples": [{"prompt": 1, "mask": "12", "rollout": 0, "group": 0}]}, "got '12'"),
        ({"samples": [{"prompt": 1, "mask": [1], "rollout": 0, "group": 0}]}, r"got \[1\]"),
        ({"samples": [{"prompt": "1", "mask": "1", "rollout": 0, "group": 0}]}, "got '1'"),
    ],
)
def test_bad_json(data: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        Step.from_json(data)


def test_a_few_bytes_cannot_ask_for_all_memory() -> None:
    huge = {"prompt": 1, "mask": {"runs": [[1, 2**40]]}, "rollout": 0, "group": 0}
    with pytest.raises(
        OracleError, match=r"at most 67108864 tokens can be read, got 1099511627776"
    ):
        Step.from_json({"samples": [huge]})
