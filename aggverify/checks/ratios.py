"""Where ratios are not 1, results are the same in every layout.

Of importance weights, filters by ratio and a KL to the reference; and a ratio that overflows makes
nothing NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import LAYOUT, Check, Finding, Need, failure_finding
from aggverify.checks.comparison import LOW
from aggverify.checks.judging import is_finite
from aggverify.checks.nonlinear import BOUND, judge_two
from aggverify.checks.spaces import spread
from aggverify.conventions.base import NONLINEAR
from aggverify.conventions.policy_loss import OVERFLOWS
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "holds_at_other_ratios"
LAYOUTS, OVERFLOW = "AGV215", "AGV216"
AT_HAND = "ratios of what is at hand"


_NEAR = Fraction(1, 1 << 10)
"""Relative, for what computes in float32: more than a thousand of its roundings, each of which an
exponential makes 12 times as large on the inputs used here."""


def _space(subject: Subject) -> Space | None:
    if not getattr(subject.convention, "has_ratios", False) or subject.computes_in in LOW:
        return None
    return spread(subject, dp=4, cp=2, micro_batches=3, dtypes=("float64",))


def _variants(case: Case) -> tuple[RunSpec, ...]:
    """Return the step on one rank, as laid out, and twice more on one rank.

    There the ratio of a masked token overflows, then that of a token that counts.
    """
    behind = case.masked_tokens()
    counted = sorted(set(range(len(case.losses))) - set(behind))
    cases = (case.trivial, case, _beyond(case.trivial, behind), _beyond(case.trivial, counted))
    return tuple(RunSpec(replace(each, dtype="float64"), mode=NONLINEAR) for each in cases)


def _beyond(case: Case, tokens: Sequence[int]) -> Case:
    losses = list(case.losses)
    for token in tokens[len(tokens) // 2 :][:1]:
        losses[token] = OVERFLOWS
    return case.with_losses(tuple(losses))


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    alone, laid_out, *beyond = executions
    if not is_finite(alone):
        return failure_finding(NAME, subject, alone)
    if not subject.nonlinear:  # else other checks do just that
        failed = failure_finding(NAME, subject, laid_out)
        near = BOUND if subject.computes_in == "float64" else _NEAR
        found = failed or judge_two(NAME, LAYOUTS, subject, alone, laid_out, near)
        if found is not None:
            # Whether tokens are let in or weigh something else depends on the step: one mistake.
            return found if failed else replace(found, signs=(*found.signs, AT_HAND))
    for ran, where in zip(beyond, ("masked", "that counts"), strict=True):
        if ran.failure is None and ran.weights is not None and _is_nan(ran):
            message = (
                f"with a log-ratio of 1000 to the rollout policy at a token {where}, the loss or a "
                f"gradient is NaN: 0 x inf"
            )
            return Finding(OVERFLOW, NAME, message, alone.case, subject.mode)
    return None


def _is_nan(ran: Execution) -> bool:
    """Whether a loss is NaN: a product with 0, or a difference.

    An infinite weight may make a loss infinite.
    """
    losses = [loss for rank in ran.local_losses for loss in rank]
    assert ran.weights is not None
    return bool(np.isnan(losses).any() or np.isnan(ran.weights).any())


CHECK = Check(
    name=NAME,
    title="at ratios other than 1 nothing depends on the layout, and no ratio overflows to NaN",
    space=_space,
    variants=_variants,
    judge=_judge,
    needs=(Need(LAYOUT, "at ratio 1 it depends on the layout already"),),
    not_applicable="not a policy loss",
    max_examples=20,
    max_stored=20,
)
