"""What the parent makes of the ranks' answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aggverify.checks.base import failure_finding
from aggverify.execution.claim import Claim
from aggverify.execution.laboratory import Execution, Laboratory
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.answer import Answer
from aggverify.world import Job, Outcome, Replies, Reply

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
STEP = parse_step("1/1; 1/11")
CASE = Case(STEP, Layout((((0,),), ((1,),))), plain_losses(STEP))


@dataclass(frozen=True, slots=True)
class Ranks:
    """Stands for a template whose ranks reply this to every job, at once."""

    outcome: Outcome

    def submit(self, jobs: Sequence[Job]) -> Any:
        @dataclass(frozen=True)
        class Done:
            outcomes: list[Outcome]

            def wait(self) -> list[Outcome]:
                return self.outcomes

            def stumbles(self) -> bool:
                return False

        return Done([self.outcome] * len(jobs))


def executed(*answers: Answer) -> Execution:
    """One execution of two ranks that answer so; both losses count, rank 0 sends the gradient."""
    weights = np.full(3, 1 / 3).tobytes()
    replies = (Reply(answer.to_json(), b"" if n else weights) for n, answer in enumerate(answers))
    laboratory = Laboratory(Ranks(Replies(tuple(replies))))  # type: ignore[arg-type]
    [execution] = laboratory.run(SUBJECT, [CASE])
    return execution


def test_answers_become_weights_and_the_scalar() -> None:
    found = executed(Answer((0.25,), (1,), checksum=7), Answer((0.5,), (2,), checksum=7))
    assert found.failure is None
    assert found.weights is not None and found.weights.tolist() == [1 / 3] * 3
    assert found.value == 0.75
    assert found.counts == (1, 2)


@pytest.mark.covers(fault="disagree")
def test_gradients_that_differ_between_ranks_are_a_fault_and_no_weights() -> None:
    found = executed(Answer((0.25,), (1,), checksum=7), Answer((0.5,), (2,), checksum=8))
    assert found.failure is not None and found.failure.kind == "disagree"
    assert found.weights is None
    told = failure_finding("some_check", SUBJECT, found)
    assert told is not None and told.code == "AGV405"
