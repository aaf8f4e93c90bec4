"""T6: NaN, infinities and huge values behind the mask change nothing, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import small
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "masked_values_never_matter"
LOSS, GRADIENT = "AGV121", "AGV122"
CLEAN = "the clean run"
POISONS = (math.nan, math.inf, -math.inf, 1e30)


def space(subject: Subject) -> Space | None:
    """Small layouts with at least one masked token."""
    if "poison" not in subject.features:
        return None
    return small(subject, empty_samples=True, needs_hole=True)


def poisoned(case: Case) -> Case:
    """The case with the poisons in turn behind the mask."""
    losses = list(case.losses)
    for n, token in enumerate(case.masked_tokens()):
        losses[token] = POISONS[n % len(POISONS)]
    return case.with_losses(tuple(losses))


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Value and gradient of the poisoned run against the clean one."""
    clean, dirty = executions
    if not is_finite(clean) or clean.value is None:
        return None
    failed = failure_finding(NAME, subject, dirty)
    if failed is not None or dirty.weights is None or clean.weights is None:
        return failed
    poison = f"with {_shown(dirty.case)} behind the mask the"
    changed = np.flatnonzero(~(dirty.weights == clean.weights))  # NaN differs, -0.0 does not
    if changed.size:
        worst = int(changed[0])
        was, now = float(clean.weights[worst]), float(dirty.weights[worst])
        return Finding(
            GRADIENT,
            NAME,
            f"{poison} weight of token {worst} becomes {now!r} (clean run: {was!r})",
            clean.case,
            subject.mode,
            subject.expected(clean.case.step),
            tuple(dirty.weights.tolist()),
            CLEAN,
            worst,
        )
    if dirty.value == clean.value:
        return None
    value = "not finite" if dirty.value is None else repr(float(dirty.value))
    message = f"{poison} reported loss is {value} (clean run: {float(clean.value)!r})"
    return Finding(LOSS, NAME, message, clean.case, subject.mode, reference=CLEAN)


def _shown(case: Case) -> str:
    values = {str(case.losses[t]) for t in case.masked_tokens()}
    return ", ".join(sorted(values))


CHECK = Check(
    name=NAME,
    title="NaN, infinities and huge values behind the mask change no bit",
    tests="T6",
    space=space,
    variants=lambda case: (case, poisoned(case)),
    judge=judge,
)
