"""T6: NaN, infinities and huge values behind the mask change nothing, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.layout import COMBINED
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "masked_values_never_matter"
POISONS = (math.nan, math.inf, -math.inf, 1e30)


def space(subject: Subject) -> Space | None:
    """Small layouts with at least one masked token."""
    if "poison" not in subject.features:
        return None
    base = COMBINED.space(subject) or Space()
    return replace(
        base,
        max_dp=min(base.max_dp, 2),
        max_cp=min(base.max_cp, 2),
        max_microbatches=min(base.max_microbatches, 2),
        min_units=1,
        empty_samples=True,
        needs_hole=True,
    )


def poisoned(case: Case) -> Case:
    """The case with the poisons in turn behind the mask."""
    losses = list(case.losses)
    for n, token in enumerate(case.masked_tokens()):
        losses[token] = POISONS[n % len(POISONS)]
    return case.with_losses(tuple(losses))


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Value and gradient of the poisoned run against the clean one."""
    clean, dirty = executions
    if clean.weights is None or clean.value is None or not np.isfinite(clean.weights).all():
        return None
    failed = failure_finding(NAME, subject, dirty)
    if failed is not None or dirty.weights is None:
        return failed
    expected = subject.expected(clean.case.step)
    observed = tuple(dirty.weights.tolist())
    changed = np.flatnonzero(~(dirty.weights == clean.weights))  # NaN differs, -0.0 does not
    if changed.size:
        worst = int(changed[0])
        message = (
            f"with {_shown(dirty.case)} behind the mask the weight of token {worst} becomes "
            f"{observed[worst]!r} (clean run: {float(clean.weights[worst])!r})"
        )
        return Finding(
            "AGV122",
            NAME,
            message,
            clean.case,
            subject.mode,
            expected,
            observed,
            "the clean run",
            worst,
        )
    if dirty.value == clean.value:
        return None
    value = "not finite" if dirty.value is None else repr(float(dirty.value))
    message = (
        f"with {_shown(dirty.case)} behind the mask the reported loss is {value} "
        f"(clean run: {float(clean.value)!r})"
    )
    return Finding("AGV121", NAME, message, clean.case, subject.mode, reference="the clean run")


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
    project=lambda case: case,
)
