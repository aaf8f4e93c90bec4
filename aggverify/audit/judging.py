"""Recorded steps against the mode: what is wrong, on which step, and what it is known as."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np

from aggverify.audit import factor
from aggverify.audit.counts import one_factor, other_counts
from aggverify.audit.explaining import StepWeights, explained, mask_of, owners
from aggverify.audit.properties import (
    LOST,
    MASKED,
    NOT_FINITE,
    ONCE,
    OTHER_COUNTS,
    PADDING,
    TERM,
    TERMS,
    TWICE,
    WEIGHTS,
    WRONG,
)
from aggverify.audit.records import AMPLIFIED, Array
from aggverify.audit.steps import RecordedRun, RecordedStep
from aggverify.checks import Check, Finding
from aggverify.checks.comparison import margin, worst_weight
from aggverify.diagnosis import Diagnosis
from aggverify.execution.subject import Subject
from aggverify.oracles.bounds import PRECISIONS, relative

_READ = {"losses": 0, "log_probs": 4, "logits": 16 * AMPLIFIED}
"""Roundings between a token's weight and what is read off: a product and a quotient, or a softmax
whose roundings grow."""
_SIMPLE = 1000
"""Largest denominator of a factor that a rounded weight is read as."""


@dataclass(frozen=True, slots=True)
class JudgedFinding:
    """A finding with what is known of it, where weights do not show it."""

    finding: Finding
    diagnosis: Diagnosis | None = None


def weighed(subject: Subject, run: RecordedRun) -> list[StepWeights]:
    """Every step's weights after the engine's reduction."""
    return [_weighed(subject, run, step) for step in run.steps]


def _weighed(subject: Subject, run: RecordedRun, step: RecordedStep) -> StepWeights:
    by = factor.reduction(subject.engine, run.ranks, step)
    with np.errstate(over="ignore"):
        observed = step.weights * by.numerator / by.denominator
    expected = subject.expected(step.step)
    assert expected is not None
    rest = step.case.step.num_response_tokens - len(expected)
    mask = mask_of(step)
    return StepWeights(
        step,
        observed,
        (*expected, *[Fraction(0)] * rest),
        _odd(step) | (~mask & (step.weights != 0)),
        ~step.known & mask,
    )


def roundings(subject: Subject, run: RecordedRun) -> int:
    """On a weight's path in the step of the most rollouts, and on the way it is read off."""
    own = (subject.roundings_on(each.step) for each in run.steps)
    return max(own, default=subject.roundings_on()) + max(_READ[q] for q in run.quantities)


def once(
    subject: Subject, run: RecordedRun, steps: Sequence[StepWeights]
) -> Iterator[JudgedFinding]:
    """Yield samples that nothing went backward through, and tokens that two ranks have."""
    for one in steps:
        step = one.step
        idle = [n for n, s in enumerate(step.samples) if not s.used and s.mask.any()]
        gaps = [n for n, s in enumerate(step.samples) if s.lost]
        twice = [n for n, s in enumerate(step.samples) if (s.twice & s.mask).any()]
        if idle:
            tokens = sum(int(step.samples[n].mask.sum()) for n in idle)
            text = f"its losses were computed and never backpropagated: {tokens} tokens"
            yield _finding_of(
                subject, one, ONCE, LOST, idle, text, "losses without a backward pass"
            )
        if gaps:
            lost = step.samples[gaps[0]].lost
            text = f"no rank holds its positions {_runs(lost)}"
            yield _finding_of(subject, one, ONCE, LOST, gaps, text, "positions that no rank holds")
        if twice:
            tokens = sum(int((step.samples[n].twice & step.samples[n].mask).sum()) for n in twice)
            text = f"{tokens} tokens are weighed several times, and their gradients add up"
            yield _finding_of(subject, one, ONCE, TWICE, twice, text, "one sample on several ranks")


def masked(
    subject: Subject, run: RecordedRun, steps: Sequence[StepWeights]
) -> Iterator[JudgedFinding]:
    """Weights where there must be none."""
    for one in steps:
        step, mask = one.step, mask_of(one.step)
        wrong = np.flatnonzero(~mask & (step.weights != 0))
        if not len(wrong):
            continue
        owner = owners(step)
        samples = sorted({int(owner[t]) for t in wrong})
        dummies = sum(n < len(step.samples) and step.samples[n].dummy for n in samples)
        what = f", {dummies} of {len(samples)} samples dummies" if dummies else ""
        text = f"{len(wrong)} tokens that are masked, or padding, have a weight{what}"
        yield _finding_of(
            subject, one, MASKED, PADDING, samples, text, "a weight behind the mask", int(wrong[0])
        )


def weights(
    subject: Subject, run: RecordedRun, steps: Sequence[StepWeights]
) -> Iterator[JudgedFinding]:
    """Yield a finding on the smallest step with wrong weights, and why; none if all are right."""
    found = [f for one in steps if (f := _wrong(subject, run, one)) is not None]
    if not found:
        return
    worst = min(found, key=lambda f: f[0].step.case.step.num_response_tokens)
    one, finding = worst
    scope = _scope(found, steps)
    message = scope + _smallest(one, finding)
    if not np.isfinite(one.judged).all():
        yield JudgedFinding(replace(finding, code=NOT_FINITE, message=message))
        return
    wrong = [(w.step, w.judged, w.expected) for w, _ in found]
    if (other := other_counts(wrong, run.steps)) is not None:
        yield JudgedFinding(replace(finding, code=OTHER_COUNTS, message=scope), other)
        return
    finding = replace(finding, code=WRONG, message=message)
    known = one_factor(wrong, run.ranks)
    yield JudgedFinding(finding, known or explained(subject, finding, steps))


def _wrong(
    subject: Subject, run: RecordedRun, one: StepWeights
) -> tuple[StepWeights, Finding] | None:
    found = one.judged
    off = worst_weight(found, one.expected, roundings(subject, run), precision(subject, run))
    if off is None or off.accumulated:
        return None
    return one, Finding(
        WRONG,
        WEIGHTS.name,
        "",
        one.step.case,
        subject.mode,
        one.expected,
        _read_as_factors(subject, run, one),
        token=off.token,
        error=off.error,
        bound=off.bound,
    )


def _read_as_factors(subject: Subject, run: RecordedRun, one: StepWeights) -> tuple[float, ...]:
    """Return every weight as the mode's times the simplest factor that its rounding allows.

    For example 1/2, and not 268435461/536870912.
    """
    bound = relative(roundings(subject, run), PRECISIONS[precision(subject, run)])

    @cache
    def simple(found: float, exact: Fraction) -> float:
        if not exact or not math.isfinite(found):
            return found
        ratio = Fraction(found) / exact
        near = ratio.limit_denominator(_SIMPLE)
        return float(near * exact) if abs(near - ratio) <= bound * abs(ratio) else found

    return tuple(map(simple, one.observed.tolist(), one.expected))


def _scope(found: Sequence[tuple[StepWeights, Finding]], steps: Sequence[StepWeights]) -> str:
    numbers = ", ".join(str(w.step.number) for w, _ in found[:5]) + ", …" * (len(found) > 5)
    return f"in {len(found)} of {len(steps)} recorded optimizer steps ({numbers})"


def _smallest(one: StepWeights, finding: Finding) -> str:
    """Return the smallest group of samples that shows it: one of them does."""
    exact = np.array([float(w) for w in one.expected])
    near = np.abs(one.judged - exact) <= float(finding.bound or 0) * 2
    owner = owners(one.step)
    wrong = sorted({int(n) for n in owner[~near]})
    assert finding.token is not None
    shown = int(owner[finding.token])
    of = len(one.step.step.samples)
    return (
        f"\n{one.step.name(shown)} alone shows it; {len(wrong)} of {of} samples have such weights"
    )


def terms(
    subject: Subject, run: RecordedRun, steps: Sequence[StepWeights]
) -> Iterator[JudgedFinding]:
    """Yield further terms whose weights in a step are not one multiple of the losses'."""
    for one in steps:
        base = one.step.weights
        for name, own in one.step.terms.items():
            kept = (base != 0) & one.step.known
            if not kept.any():
                continue
            by = own[kept][0] / base[kept][0]
            wanted = tuple(Fraction(w) for w in (base * by).tolist())
            of_both = 2 * roundings(subject, run) + 1
            off = worst_weight(own, wanted, of_both, precision(subject, run))
            if off is not None and not off.accumulated:
                made = _finding_of(
                    subject,
                    one,
                    TERMS,
                    TERM,
                    [],
                    f"step {one.step.number}: term {name!r} has other weights than the losses",
                    f"the term {name} is averaged otherwise",
                    off.token,
                )
                yield replace(
                    made,
                    finding=replace(
                        made.finding,
                        expected=wanted,
                        observed=tuple(own.tolist()),
                        reference="the losses' weights, scaled to the first token",
                        error=off.error,
                        bound=off.bound,
                        term=name,
                    ),
                )


def worst_margin(subject: Subject, run: RecordedRun, steps: Sequence[StepWeights]) -> float:
    """Return the largest error over its bound, of weights that are right."""
    given = roundings(subject, run), precision(subject, run)
    shares = (margin(one.judged, one.expected, *given) for one in steps)
    return max((share for share in shares if share <= 1), default=0.0)


def _finding_of(
    subject: Subject,
    one: StepWeights,
    about: Check,
    code: str,
    samples: Sequence[int],
    text: str,
    root: str,
    token: int | None = None,
) -> JudgedFinding:
    """Return a finding that needs no diagnosis; on the first of these samples."""
    step = one.step
    if samples and token is None:
        token = step.case.step.offsets[samples[0]]
    named = f"{step.name(samples[0])}, step {step.number}: {text}" if samples else text
    more = f"\n{len(samples)} samples of the step in all" if len(samples) > 1 else ""
    finding = Finding(
        code,
        about.name,
        named + more,
        step.case,
        subject.mode,
        one.expected,
        tuple(one.observed.tolist()),
        token=token,
    )
    return JudgedFinding(finding, Diagnosis(root, root=root))


def _odd(step: RecordedStep) -> Array:
    """Whether a token is weighed several times, or was never backpropagated."""
    parts = [s.twice | (s.mask & (not s.used)) for s in step.samples]
    found = np.concatenate(parts)
    return np.concatenate([found, np.zeros(len(step.weights) - len(found), dtype=bool)])


def precision(subject: Subject, run: RecordedRun) -> str:
    """Return the dtype of the lowest precision on a weight's path."""
    return subject.computes_in if run.dtype == "float64" else run.dtype


def _runs(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return (
        f"{first} to {last}"
        if len(numbers) == last - first + 1
        else ", ".join(map(str, numbers[:8]))
    )
