"""T15: on one rank, in one micro-batch, the weights are the mode's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "weights_are_the_modes"


def space(subject: Subject) -> Space:
    """One rank, one micro-batch, nothing fully masked."""
    return Space(
        fan_out="fan-out" in subject.features,
        empty_samples=False,
        max_extra_samples=5,
        group_size=subject.group_size,
        dtypes=("float64", "float32"),
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Oracle agreement of the weights; the reported loss is a check of its own."""
    return judge_formula(NAME, ("AGV101", "AGV103"), subject, executions[0])


def judge_formula(
    check: str, codes: tuple[str, str], subject: Subject, execution: Execution
) -> Finding | None:
    """Compare one trivial-layout execution with the oracle; codes for wrong and not finite."""
    failed = failure_finding(check, subject, execution)
    if failed is not None or execution.weights is None:
        return failed
    wrong, not_finite = codes
    case, weights = execution.case, execution.weights
    expected = subject.expected(case.step)
    observed = tuple(weights.tolist())
    if not np.isfinite(weights).all():
        worst = int(np.flatnonzero(~np.isfinite(weights))[0])
        message = f"the weight of token {worst} is {weights[worst]}"
        return Finding(
            not_finite, check, message, case, subject.mode, expected, observed, token=worst
        )
    if expected is None:
        return None
    precision = lowest_precision(subject, case)
    found = worst_weight(weights, expected, subject.roundings, precision)
    if found is not None:
        return Finding(
            wrong,
            check,
            "",
            case,
            subject.mode,
            expected,
            observed,
            token=found.token,
            error=found.error,
            bound=found.bound,
        )
    if execution.value is None:
        return Finding(not_finite, check, "the reported loss is not finite", case, subject.mode)
    return None


def project(case: Case) -> Case:
    """The case on one rank in one micro-batch."""
    return case.trivial


CHECK = Check(
    name=NAME,
    title="the weights agree with the oracle's on one rank",
    tests="T15",
    space=space,
    variants=lambda case: (case,),
    judge=judge,
    project=project,
)
