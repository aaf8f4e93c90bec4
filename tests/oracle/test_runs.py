"""Runs: what they stand for, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggverify.oracles import OracleError, Sample, Step
from aggverify.oracles.runs import length, runs, starts_of_runs


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 400)), min_size=1, max_size=5))
def test_masks_survive(parts: list[tuple[int, int]]) -> None:
    mask = b"".join(bytes([bit]) * count for bit, count in parts)
    step = Step((Sample(1, mask, 0, 0, b"\1" * len(mask)),))
    assert Step.from_json(step.to_json()) == step
    assert length(step.to_json()["samples"][0]["mask"]) == len(mask)


def test_long_plain_masks_are_runs() -> None:
    step = Step((Sample(1, b"\1" * 300 + b"\0", 0, 0), Sample(1, b"\1\0" * 200, 1, 0)))
    long, alternating = (s["mask"] for s in step.to_json()["samples"])
    assert long == {"runs": [[1, 300], [0, 1]]}
    assert alternating == "10" * 200


def test_zeros_of_both_signs_are_two_runs() -> None:
    assert starts_of_runs(np.array([0.0, 0.0, -0.0, -0.0, 1.0])).tolist() == [0, 2, 4]


@pytest.mark.parametrize("data", [{"runs": 1}, {"runs": [1]}, {"runs": [[1]]}, {"runs": [[1, 0]]},
                                  {"runs": [[1, True]]}, {"runs": [[1, 1.0]]}])  # fmt: skip
def test_what_is_no_run_is_refused(data: object) -> None:
    with pytest.raises(OracleError, match="run"):
        runs(data)


def test_other_forms_are_not_runs() -> None:
    assert runs("01") is runs({"all": 1}) is runs({"runs": [], "more": 1}) is None
    assert (length("010"), length(None)) == (3, 0)
    with pytest.raises(OracleError, match="0 and 1 only, got 2"):
        Step.from_json({"samples": [{"mask": {"runs": [[2, 1]]}, "prompt": 1, "rollout": 0,
                                     "group": 0}]})  # fmt: skip
