"""T15: on one rank, in one micro-batch, the weights are the mode's."""

from __future__ import annotations

from collections.abc import Sequence

from aggverify.checks.base import FORMULA, Check, Finding
from aggverify.checks.judging import judge_formula
from aggverify.checks.objective import judge_objective
from aggverify.checks.spaces import alone
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject

NAME = "weights_are_the_modes"
CODES = ("AGV101", "AGV103")
"""Wrong, and not finite."""


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Oracle agreement of the weights.

    The reported loss has its own check, but for an objective that is not linear.
    """
    found = judge_formula(NAME, CODES, subject, executions[0])
    return judge_objective(NAME, subject, executions[0]) if found is None else found


CHECK = Check(
    name=NAME,
    title="the weights agree with the oracle's on one rank",
    tests="T15",
    space=alone,
    judge=judge,
    project=lambda case: case.trivial,
    aspect=FORMULA,
)
