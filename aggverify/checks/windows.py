"""T17: a partial accumulation window after a full one is scaled by its own number of steps.

The number of steps of another window can be remembered where every step is otherwise forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout

NAME = "partial_windows_are_whole"
CODE = "AGV208"
LAST_WINDOW = "the last window's number of micro-batches"
EARLIER_STEP = "something of the last window"
_NEAR = 2.0**-16


def space(subject: Subject) -> Space | None:
    """Up to three micro-batches on up to two ranks, after a window with one more."""
    if subject.group_size or subject.most("micro-batches") is not None:
        return None
    if "micro-batches" not in subject.features:
        return None
    return spread(subject, dp=2, cp=1, min_units=1, fan_out=False)


def full_window(case: Case) -> Case:
    """Return a step of one micro-batch more on every rank, with twice the first one's samples.

    So no other count grows as their number does; every sample is its own prompt group.
    """
    samples: list[Sample] = []
    ranks = []
    for rank in case.layout.micro_batches:
        cells = []
        for cell in (*rank, rank[0] * 2):
            first = len(samples)
            for i in cell:
                given, n = case.step.samples[i], len(samples)
                samples.append(Sample(given.prompt_length, given.loss_mask, n, n))
            cells.append(tuple(range(first, len(samples))))
        ranks.append(tuple(cells))
    step = Step(tuple(samples))
    losses = tuple((t % 7 + 1) / 8 for t in range(step.num_response_tokens))
    return Case(step, Layout(tuple(ranks)), losses, case.dtype)


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare, to the last bit, with the window in ranks that have seen no other.

    Whether that is right, and whether the window before comes to a result by itself, is for other
    checks to report.
    """
    alone, full, after = executions
    if not is_finite(alone) or full.failure is not None:
        return None
    failed = failure_finding(NAME, subject, after)
    if failed is not None:
        steps = full.case.layout.num_microbatches
        message = f"only after a window of {steps} micro-batches: {failed.message}"
        return replace(failed, message=message)
    if after.weights is None or alone.weights is None:
        return None
    wrong = after.weights != alone.weights
    if not wrong.any():
        return None
    token = int(np.flatnonzero(wrong)[0])
    signs = (LAST_WINDOW,) if _is_of_the_last_window(alone, after) else (EARLIER_STEP,)
    expected = tuple(Fraction(w) for w in alone.weights.tolist())
    observed = tuple(after.weights.tolist())
    known = np.isfinite(after.weights[token])
    steps = alone.case.layout.num_microbatches
    return Finding(
        CODE,
        NAME,
        f"after a window of {steps + 1} micro-batches, in one of {steps}",
        alone.case,
        subject.mode,
        expected,
        observed,
        "in ranks that have seen no other window",
        token,
        abs(Fraction(observed[token]) - expected[token]) if known else None,
        signs=signs,
    )


def _is_of_the_last_window(alone: Execution, after: Execution) -> bool:
    """Whether all weights are off by its micro-batches over this one's, or the other way round."""
    assert alone.weights is not None and after.weights is not None
    steps, kept = alone.case.layout.num_microbatches, alone.weights != 0
    ratios = after.weights[kept] / alone.weights[kept]
    last = (steps + 1) / steps
    return any(np.allclose(ratios, ratio, rtol=_NEAR, atol=0) for ratio in (last, 1 / last))


def variants(case: Case) -> tuple[RunSpec, RunSpec, RunSpec]:
    """Return the case alone, then a fuller one, then the case again after the fuller one.

    The case runs in new ranks both times, so that no earlier one is remembered in either.
    """
    alone, full = RunSpec(case, fresh=True), full_window(case)
    return alone, RunSpec(full), replace(alone, before=(full,))


def project(case: Case) -> Case:
    """Return the case without context parallelism."""
    return case.with_layout(Layout(case.layout.micro_batches))


CHECK = Check(
    name=NAME,
    title="after a full accumulation window, a partial one has its own weights",
    tests="T17",
    space=space,
    variants=variants,
    judge=judge,
    project=project,
    not_applicable="micro-batches of whole prompt groups only",
    max_examples=2,
    max_stored=2,
)
