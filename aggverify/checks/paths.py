"""T14: two paths of one framework (old and new, fused and eager) agree on every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.checks.judging import with_mismatch
from aggverify.checks.nonlinear import judge_two
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import AGAINST, RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles.bounds import PRECISIONS

NAME = "two_paths_agree"
CODE = "AGV521"


def space(subject: Subject) -> Space | None:
    """Return the layouts that both paths can be given, fully masked units included."""
    if subject.against is None:
        return None
    return spread(subject, min_units=1, empty_samples=True)


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare the weights of both, each with its own roundings; no oracle is asked."""
    new, old = executions
    assert subject.against is not None
    if old.weights is None or new.weights is None:
        return _one_failed(subject, new, old)
    if subject.nonlinear:
        found = judge_two(NAME, CODE, subject, old, new)
        return None if found is None else replace(found, reference=subject.against.target)
    finite = np.isfinite(old.weights)
    if not finite.all():
        same = np.array_equal(finite, np.isfinite(new.weights))
        return None if same else _finding(subject, new, int(np.argmin(finite)))
    step = new.case.step
    roundings = subject.roundings_on(step) + subject.against.roundings_on(step)
    both = (lowest_precision(s, new.case) for s in (subject, subject.against))
    precision = min(both, key=lambda name: PRECISIONS[name].p)
    expected = tuple(Fraction(w) for w in old.weights.tolist())
    worst = worst_weight(new.weights, expected, roundings, precision)
    if worst is None:
        return None
    return with_mismatch(replace(_finding(subject, new), expected=expected), worst)


def _one_failed(subject: Subject, new: Execution, old: Execution) -> Finding | None:
    """Return the finding where only one path gets a step done.

    Where neither does they agree.
    """
    assert subject.against is not None
    if new.weights is not None:
        message = f"only {subject.target} gets this step done; {subject.against.target}: "
        message += old.failure.message if old.failure else "no result"
        return Finding(CODE, NAME, message, new.case, subject.mode)
    if old.weights is None:
        return None
    return failure_finding(NAME, subject, new)


def _finding(subject: Subject, new: Execution, token: int | None = None) -> Finding:
    assert subject.against is not None and new.weights is not None
    observed = tuple(new.weights.tolist())
    target = subject.against.target
    return Finding(
        CODE, NAME, "", new.case, subject.mode, None, observed, reference=target, token=token
    )


CHECK = Check(
    name=NAME,
    title="on every step the weights of both paths agree within both bounds",
    tests="T14",
    space=space,
    variants=lambda case: (case, RunSpec(case, where=AGAINST)),
    judge=judge,
    not_applicable="no --against TARGET",
    compares_paths=True,
)
