"""A loss is called without gradients, in validation, and under autocast: it stays what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from aggverify.checks.base import Check, Finding, as_it_is, failure_finding
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.checks.judging import is_finite, loss_text
from aggverify.checks.logs import objective
from aggverify.checks.spaces import hard_and_long, of_a_loss
from aggverify.execution.executed import Execution, Weights
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.trainer.torch_modes import AUTOCAST, NO_GRAD

NAME = "the_same_in_validation_and_autocast"
VALIDATION, LOWERED = "AGV128", "AGV129"
_AUTOCAST = "bfloat16"
"""What autocast computes products in: no reducer is blamed for what that rounds."""


def space(subject: Subject) -> Space | None:
    """Small layouts: the modes of torch are the same on all of them."""
    return of_a_loss(subject, dtypes=("float64",))


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare the loss without gradients, and the weights under autocast, with the plain run's."""
    plain, without, lowered = executions
    if plain.weights is None or not is_finite(plain):
        return None
    return _validation(subject, plain, without) or _lowered(subject, plain.weights, lowered)


def _validation(subject: Subject, plain: Execution, without: Execution) -> Finding | None:
    """Compare the loss in validation, where it can be called so.

    Nothing where the loss is not that of its gradient even in training, which another check
    reports.
    """
    wanted = objective(subject, plain, kept_in="float32")
    if without.failure is not None or wanted is None or plain.value is None:
        return None
    if not wanted.is_met(plain.value):
        return None
    if without.value is not None and wanted.is_met(without.value):
        return None
    now = loss_text(without.value)
    message = f"without gradients the loss is {now}, not {float(plain.value)!r}"
    return Finding(VALIDATION, NAME, message, plain.case, subject.mode)


def _lowered(subject: Subject, plain: Weights, lowered: Execution) -> Finding | None:
    weights = tuple(map(Fraction, plain.tolist()))
    failed = failure_finding(NAME, subject, lowered)
    if failed is not None or lowered.weights is None:
        return failed
    precision = lowest_precision(subject.knowing(computes_in=_AUTOCAST), lowered.case)
    roundings = 2 * subject.roundings_on(lowered.case.step)
    off = worst_weight(lowered.weights, weights, roundings, precision)
    if off is None or off.token is None:
        return None
    was, now = float(weights[off.token]), float(lowered.weights[off.token])
    message = f"under autocast the weight of token {off.token} is {now!r}, not {was!r}"
    found = Finding(LOWERED, NAME, message, lowered.case, subject.mode)
    return replace(found, token=off.token, error=off.error, bound=off.bound)


def _variants(case: Case) -> tuple[RunSpec, ...]:
    return RunSpec(case), RunSpec(case, under=NO_GRAD), RunSpec(case, under=AUTOCAST)


CHECK = Check(
    name=NAME,
    title="the same loss without gradients, and the same weights under autocast",
    space=space,
    stored=partial(hard_and_long, space=space, usual=6),
    variants=_variants,
    judge=judge,
    max_examples=2,
    max_stored=6,
    one_will_do=True,
    on_branches=as_it_is,
    of_weights=False,
    linear_only=True,
)
