"""A reducer that follows another reading of the policy is told which, and passes under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.oracles import MODES, Policy
from aggverify.run.opening import opened
from aggverify.run.outcome.verdict import Exit, RunVerdict
from aggverify.run.session import examine
from aggverify.world import Pool
from tests.choosing import thorough_at_times

FILE = Path(__file__).with_name("readings.py")
READINGS = [
    ("empty_rollouts_left_out", "sample_mean", {"empty_units": "exclude"}),
    ("each_sample_by_itself", "sample_mean", {"several_samples": "samples_over_rollouts"}),
    ("divided_by_valid_rollouts", "constant", {"constant_count": "valid_rollouts"}),
    ("divided_by_the_divisor_alone", "constant", {"constant_count": "one"}),
    (
        "groups_counted_by_size",
        "prompt_mean",
        {"prompt_count": "rollouts_over_group_size", "group_size": "2"},
    ),
]


@pytest.fixture(scope="module")
def executor(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"path": str(FILE)}) as template:
        yield Executor(template)


def verdict(executor: Executor, function: str, mode: str, policy: Policy) -> RunVerdict:
    subject = Subject.of(
        Claim(
            str(FILE),
            function,
            "native",
            "sum",
            mode,
            divisor=16.0 if MODES[mode].needs_divisor else None,
            policy=policy,
            max_world=2,
            budget=Budget("quick", max_examples=5),
        )
    )
    return examine(subject, executor)


@pytest.mark.parametrize("row", thorough_at_times(READINGS, 6, ids=lambda row: row[0]))
def test_the_reading_is_named_and_can_be_declared(
    executor: Executor, row: tuple[str, str, dict[str, str]]
) -> None:
    function, mode, readings = row
    found = verdict(executor, function, mode, Policy())
    assert found.exit is Exit.FINDINGS
    if "group_size" not in readings:  # nobody declared G, so P cannot be recognised as N / G
        ((question, reading),) = readings.items()
        told = [r.diagnosis.sentence for r in found.reports if r.diagnosis]
        assert any(f"another reading: {question} = {reading!r}" in text for text in told), told
    declared = verdict(executor, function, mode, Policy.from_text(readings))
    assert declared.exit is Exit.CONFORMS, declared.reports
