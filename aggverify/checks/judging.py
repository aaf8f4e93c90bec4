"""What most checks judge by: the oracle on one rank, and the oracle or one rank everywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import ORACLE, Finding, failure_finding
from aggverify.checks.comparison import Mismatch, lowest_precision, worst_weight
from aggverify.checks.nonlinear import judge_two
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject


def is_finite(execution: Execution) -> bool:
    """Whether it came to weights, all of them finite."""
    return execution.weights is not None and bool(np.isfinite(execution.weights).all())


def has_result(execution: Execution) -> bool:
    """Whether there is something to judge: equal failures do not show what would have come."""
    if execution.failure is not None:
        return False
    return execution.weights is None or is_finite(execution)


def loss_text(value: Fraction | None) -> str:
    """Return a reported loss as messages have it; None is one that is not finite."""
    return "not finite" if value is None else repr(float(value))


def with_mismatch(found: Finding, off: Mismatch) -> Finding:
    """Return the finding with the worst token, its error and its bound."""
    return replace(found, token=off.token, error=off.error, bound=off.bound, limit=off.limit)


def judge_elsewhere(
    found: Finding, subject: Subject, here: Execution, there: Execution, where: str
) -> Finding | None:
    """Compare weights of the same code run in another way, each side with its own roundings.

    ``here`` must have finite ones; ``found`` has no message yet; ``where`` follows "only" in it.
    """
    if there.failure is not None:
        message = f"only {where}: {there.failure.message}"
        return replace(found, message=message, fault=there.failure)
    assert here.weights is not None and there.weights is not None
    expected = tuple(map(Fraction, here.weights.tolist()))
    found = replace(found, expected=expected, observed=tuple(there.weights.tolist()))
    if not is_finite(there):
        return replace(found, message=f"only {where}: weights are not finite")
    roundings = 2 * subject.roundings_on(there.case.step)
    precision = lowest_precision(subject, there.case)
    off = worst_weight(there.weights, expected, roundings, precision)
    return None if off is None else with_mismatch(found, off)


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
    found = Finding(wrong, check, "", case, subject.mode, expected, tuple(weights.tolist()))
    if not is_finite(execution):
        worst = int(np.flatnonzero(~np.isfinite(weights))[0])
        message = f"the weight of token {worst} is {weights[worst]}"
        return replace(found, code=not_finite, message=message, token=worst)
    if expected is None:
        return None
    precision = lowest_precision(subject, case)
    off = worst_weight(weights, expected, subject.roundings_on(case.step), precision)
    if off is not None:
        return with_mismatch(found, off)
    if execution.value is None:
        return Finding(not_finite, check, "the reported loss is not finite", case, subject.mode)
    return None


def judge_spread(
    check: str, code: str, subject: Subject, executions: Sequence[Execution]
) -> Finding | None:
    """Judge the last execution, as laid out; a control that is not finite is another check's."""
    *control, spread = executions
    if not all(map(is_finite, control)):
        return None
    failed = failure_finding(check, subject, spread)
    if failed is not None or spread.weights is None:
        return failed
    return judge_layout(check, code, subject, control, spread)


def judge_layout(
    check: str, code: str, subject: Subject, control: Sequence[Execution], spread: Execution
) -> Finding | None:
    """Compare with the oracle, or with the control if that already differs from the oracle.

    The control is the trivial layout.
    """
    assert spread.weights is not None
    if subject.nonlinear:
        return judge_two(check, code, subject, control[0], spread)
    case, precision = spread.case, lowest_precision(subject, spread.case)
    expected, reference = subject.expected(case.step), ORACLE
    roundings = subject.roundings_on(case.step)
    for trivial in control:
        assert trivial.weights is not None
        if expected is None or worst_weight(trivial.weights, expected, roundings, precision):
            # Both sides carry the candidate's own roundings now.
            expected = tuple(Fraction(w) for w in trivial.weights.tolist())
            roundings, reference = 2 * roundings, "one rank, one micro-batch"
    assert expected is not None  # without an oracle there is always a control
    off = worst_weight(spread.weights, expected, roundings, precision)
    if off is None:
        return None
    observed = tuple(spread.weights.tolist())
    found = Finding(code, check, "", case, subject.mode, expected, observed, reference)
    return with_mismatch(found, off)
