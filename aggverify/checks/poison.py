"""T6: whatever stands behind the mask changes nothing, bit for bit.

Huge values must not matter to anybody. NaN and infinity are another check, whose findings are
hazards: ``x * mask`` is right wherever the trainer promises finite values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from aggverify.checks.base import MASK, Check, Finding, Need, as_it_is, failure_finding
from aggverify.checks.judging import is_finite, loss_text
from aggverify.checks.refusal import refusal
from aggverify.checks.spaces import hard, small
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout

FINITE, NOT_FINITE = "masked_values_never_matter", "masked_nans_never_matter"
HUGE = (1e30, -1e30, 1e20, -3e12)
"""Of different sizes: those of two tokens never cancel."""
HALF = (6e4, 5e4, 4e4, 3e4)
"""The same in float16, in which two of them add up to infinity."""
POISONS = (math.nan, math.inf, -math.inf)
SEEN = "infinities_are_seen"
HIDDEN = "AGV127"
CLEAN = "the clean run"


def space(subject: Subject) -> Space:
    """Small layouts with at least one masked token."""
    return small(subject, empty_samples=True, needs_hole=True)


def claimed_space(subject: Subject) -> Space | None:
    """Return the same layouts, None where it is claimed that NaN and infinity never occur."""
    return space(subject) if "poison" in subject.features else None


def poisoned(case: Case, poisons: Sequence[float] = POISONS) -> Case:
    """Return the case with the poisons in turn behind the mask."""
    losses = list(case.losses)
    for n, token in enumerate(case.masked_tokens()):
        losses[token] = poisons[n % len(poisons)]
    return case.with_losses(tuple(losses))


def judge(
    check: str, codes: tuple[str, str], subject: Subject, executions: Sequence[Execution]
) -> Finding | None:
    """Compare value and gradient of the poisoned run with the clean one's; a code for either."""
    clean, dirty = executions
    if not is_finite(clean) or clean.value is None:
        return None
    failed = failure_finding(check, subject, dirty)
    if failed is not None or dirty.weights is None or clean.weights is None:
        return failed
    in_loss, in_gradient = codes
    poison = f"with {_shown(dirty.case)} behind the mask the"
    changed = np.flatnonzero(~(dirty.weights == clean.weights))  # NaN differs, -0.0 does not
    if changed.size:
        worst = int(changed[0])
        was, now = float(clean.weights[worst]), float(dirty.weights[worst])
        return Finding(
            in_gradient,
            check,
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
    value = loss_text(dirty.value)
    message = f"{poison} reported loss is {value} (clean run: {float(clean.value)!r})"
    return Finding(in_loss, check, message, clean.case, subject.mode, reference=CLEAN)


def judge_huge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge huge finite values behind the mask.

    A non-linear objective may make them infinite itself: that is not held against it here.
    """
    if subject.nonlinear and not is_finite(executions[-1]) and executions[-1].failure is None:
        return None
    return judge(FINITE, ("AGV121", "AGV122"), subject, executions)


def judge_not_finite(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge NaN and infinities behind the mask, which may also be refused."""
    if refusal(executions[-1]) is not None:
        return None
    return judge(NOT_FINITE, ("AGV123", "AGV124"), subject, executions)


def _one_infinite(case: Case) -> Case:
    """Return the case with its first unmasked loss infinite."""
    masked = set(case.masked_tokens())
    losses = list(case.losses)
    first = next((t for t in range(len(losses)) if t not in masked), None)
    if first is not None:
        losses[first] = math.inf
    return case.with_losses(tuple(losses))


def judge_seen(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge that a counted infinite loss makes the step's loss infinite, or is refused."""
    clean, infinite = executions
    if clean.value is None or infinite.failure is not None or infinite.value is None:
        return None
    token = next((t for t, x in enumerate(infinite.case.losses) if math.isinf(x)), None)
    if token is None or (clean.weights is not None and clean.weights[token] == 0):
        return None
    value = float(infinite.value)
    message = f"the loss of token {token} is infinite and not masked, the reported loss {value!r}"
    return Finding(HIDDEN, SEEN, message, clean.case, subject.mode)


def _shown(case: Case) -> str:
    values = {str(case.losses[t]) for t in case.masked_tokens()}
    return ", ".join(sorted(values))


def huge(case: Case) -> Case:
    """Return the case with the largest values of its dtype behind the mask."""
    return poisoned(case, HALF if case.dtype == "float16" else HUGE)


_NOTHING = Step((Sample(1, bytes(3), 0, 0), Sample(1, b"\1\0\1", 1, 1)))


def stored(subject: Subject) -> Iterator[Case]:
    """Yield the usual ones, and in float16 a micro-batch of which nothing is kept.

    Not for what makes losses itself, of exponentials that are beyond float16 behind the mask.
    """
    yield from hard(subject, space(subject))
    if not subject.nonlinear and not subject.hides_zeros:
        yield Case(_NOTHING, Layout((((0,), (1,)),)), plain_losses(_NOTHING), "float16")


CHECK = Check(
    name=FINITE,
    title="huge values behind the mask change no bit",
    tests="T6",
    space=space,
    variants=lambda case: (case, huge(case)),
    stored=stored,
    judge=judge_huge,
    max_examples=45,
    aspect=MASK,
    on_branches=as_it_is,
    of_weights=False,
)
INFINITE = Check(
    name=SEEN,
    title="an infinite loss that is not masked is not hidden",
    tests="T6",
    space=small,
    variants=lambda case: (case, _one_infinite(case)),
    judge=judge_seen,
    linear_only=True,
    max_examples=4,
    max_stored=6,
    may_refuse=lambda case: frozenset(),
    of_weights=False,
)
WITH_NANS = Check(
    name=NOT_FINITE,
    title="NaN and infinities behind the mask change no bit",
    tests="T6",
    space=claimed_space,
    variants=lambda case: (case, poisoned(case)),
    judge=judge_not_finite,
    max_examples=30,
    may_refuse=lambda case: frozenset(),
    needs=(Need(MASK, "finite values behind the mask matter already"),),
    of_weights=False,
)
