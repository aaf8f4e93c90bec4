"""A training step clips the whole step's gradient, once.

That is after all micro-batches and ranks, and after a scaler's factor is taken out.

Gradients are made larger than any norm they are clipped at. On one rank with one micro-batch a clip
by torch's ``clip_grad_norm_`` is known exactly, ``min(1, max_norm / (norm + 1e-6))``; everywhere
else the update is that of one rank, whatever a candidate clips by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import LAYOUT, RIGHT_FORMULA, Check, Finding, Need, failure_finding
from aggverify.checks.comparison import as_floats
from aggverify.checks.judging import is_finite
from aggverify.checks.spaces import hard, spread
from aggverify.engines import TRAIN_STEP
from aggverify.engines.train_step import LARGE
from aggverify.execution.executed import Execution, Weights
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles.bounds import PRECISIONS, weight_bound
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

NAME, CODE = "clips_the_whole_gradient_once", "AGV214"
SCALED = "clipped while scaled"
NO_EFFECT = "a clip without effect"
EACH_MICRO_BATCH = "clipped after each micro-batch"
EACH_RANK = "clipped before ranks are synchronised"
EACH_SHARD = "clipped by each shard's own norm"
_EPSILON = 1e-6
"""What torch's ``clip_grad_norm_`` adds to the norm."""
_OTHER_SCALE = 2.0**-8
_CASES = 12


def _space(subject: Subject) -> Space | None:
    if subject.engine.name != TRAIN_STEP.name:
        return None
    return spread(subject, dp=4, cp=2, min_units=1, dtypes=("float64",))


def _variants(case: Case) -> tuple[RunSpec, ...]:
    """One rank, one rank whose GradScaler begins with another scale, and as laid out."""
    alone = RunSpec(case.trivial, gain=LARGE)
    return alone, replace(alone, scaler=_OTHER_SCALE), RunSpec(case, gain=LARGE)


def _stored(subject: Subject) -> Iterator[Case]:
    space = _space(subject)
    assert space is not None
    cases = [replace(case, dtype="float64") for case in hard(subject, space)]
    # Several micro-batches first: they show what is clipped after each.
    cases.sort(key=lambda case: (case.layout.num_microbatches == 1, case.size))
    yield from dict.fromkeys(cases[:_CASES])


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    alone, rescaled, laid_out = executions
    if not is_finite(alone):
        return failure_finding(NAME, subject, alone)
    whole = subject.expected(alone.case.step)
    if whole is not None and (found := _on_one_rank(subject, alone, LARGE * as_floats(whole))):
        return found
    for ran, words in ((rescaled, "with another scale of the GradScaler"), (laid_out, "")):
        if (failed := failure_finding(NAME, subject, ran)) is not None:
            return failed
        assert alone.weights is not None and ran.weights is not None
        wanted, update = LARGE * alone.weights, LARGE * ran.weights
        if (off := _off(subject, ran.case, update, wanted)) is None:
            continue
        signs = (SCALED,) if words else tuple(_signs(ran.case, update, whole, wanted))
        text = f"{words}: " if words else ""
        message = f"{text}the update of gradients that are clipped changes, at token {off}"
        return _found(subject, ran.case, update, wanted, off, message, signs, "one rank's")
    return None


def _on_one_rank(subject: Subject, alone: Execution, gradient: Weights) -> Finding | None:
    """Compare with the gradient clipped as often, and at such norms, as torch was asked to."""
    if not alone.clips or not gradient.any():
        return None
    wanted = gradient
    for most, kind in alone.clips:
        wanted = wanted * min(1.0, most / (float(np.linalg.norm(wanted, kind)) + _EPSILON))
    assert alone.weights is not None
    update = LARGE * alone.weights
    if (off := _off(subject, alone.case, update, wanted)) is None:
        return None
    most = min(most for most, _ in alone.clips)
    if _off(subject, alone.case, update, gradient) is None:
        sign, text = NO_EFFECT, "the gradient is left as it was"
    else:
        times = float(np.linalg.norm(update) / np.linalg.norm(wanted))
        sign, text = SCALED, f"the update is {times:.6g} times the clipped gradient"
    message = f"clip_grad_norm_ was called with max_norm {most:g}, and {text}"
    return _found(subject, alone.case, update, wanted, off, message, (sign,), "clipped once")


def _bound(subject: Subject, case: Case) -> float:
    """Return the relative bound: the candidate's roundings on both sides, and those of a norm."""
    roundings = 2 * subject.roundings_on(case.step) + case.step.num_response_tokens + 4
    return float(weight_bound(Fraction(1), roundings, PRECISIONS["float64"]))


def _off(subject: Subject, case: Case, update: Weights, wanted: Weights) -> int | None:
    """Return the token furthest from what is wanted, None where all are within rounding."""
    far = np.abs(update - wanted)
    wrong = ~(far <= _bound(subject, case) * np.abs(wanted))
    return (
        int(np.argmax(np.where(wrong, np.nan_to_num(far, nan=np.inf), -1.0)))
        if wrong.any()
        else None
    )


def _found(
    subject: Subject,
    case: Case,
    update: Weights,
    wanted: Weights,
    token: int,
    message: str,
    signs: tuple[str, ...],
    reference: str,
) -> Finding:
    expected = tuple(map(Fraction, wanted.tolist()))
    return Finding(
        CODE,
        NAME,
        message,
        case,
        subject.mode,
        expected,
        tuple(update.tolist()),
        reference,
        token,
        abs(Fraction(float(update[token])) - expected[token]),
        Fraction(_bound(subject, case)) * abs(expected[token]),
        signs=signs,
    )


Clip = Callable[[Weights], Weights]


def _signs(
    case: Case, update: Weights, whole: Sequence[Fraction] | None, alone: Weights
) -> Iterator[str]:
    """Yield which parts of the gradient are clipped one by one, instead of the whole.

    The update is compared with what clipping each kind of part at the norm of one rank's update
    gives; a rank's share is taken as it is, and times a number of ranks. Both EACH_RANK and
    EACH_SHARD are yielded where shards are what ranks have. Where nothing fits, and all tokens are
    off by one factor, the gradient was clipped while scaled.
    """
    most = float(np.linalg.norm(alone))
    if whole is None or not most:
        return
    gradient = LARGE * as_floats(whole)
    owners = token_owner(case.step, case.layout)
    layout = case.layout

    def clip(part: Weights) -> Weights:
        return part * min(1.0, most / (float(np.linalg.norm(part)) + _EPSILON))

    def mine(*numbers: int | None) -> Weights:
        kept = [all(n in (None, o) for n, o in zip(numbers, own, strict=True)) for own in owners]
        return np.where(kept, gradient, 0.0)

    ranks = [(d, c) for d in range(layout.dp_size) for c in range(layout.cp_size)]
    every = range(layout.num_microbatches)
    found = ""
    for times in dict.fromkeys((1, layout.dp_size, layout.cp_size, len(ranks))):
        once = sum(clip(times * mine(d, c, None)) for d, c in ranks)
        each = sum(clip(times * mine(d, c, k)) for d, c in ranks for k in every)
        grown = sum(_grown(clip, [times * mine(d, c, k) for k in every]) for d, c in ranks)
        together = _grown(clip, [times * mine(None, None, k) for k in every])
        by_micro_batch = ((EACH_MICRO_BATCH, clipped) for clipped in (each, grown, together))
        for sign, foretold in ((EACH_RANK, once), *by_micro_batch):
            if not found and np.allclose(update * times, foretold, rtol=_NEAR, atol=0):
                found = sign
    if found:
        yield found
    if found == EACH_MICRO_BATCH:
        return
    shards = np.array_split(np.arange(len(gradient)), len(ranks))
    size = -(-len(gradient) // len(ranks))
    even = [np.arange(n, min(n + size, len(gradient))) for n in range(0, len(gradient), size)]
    for cut in (shards, even):
        parts = [np.where(np.isin(np.arange(len(gradient)), own), gradient, 0.0) for own in cut]
        if np.allclose(update, sum(map(clip, parts)), rtol=_NEAR, atol=0):
            yield EACH_SHARD
            return
    ratios = update[alone != 0] / alone[alone != 0]
    if not found and np.allclose(ratios, ratios[0], rtol=_NEAR, atol=0):
        yield SCALED


_NEAR = 1e-9
"""Far above the roundings of float64, far below what a norm of a part differs by."""


def _grown(clip: Clip, parts: Sequence[Weights]) -> Weights:
    """Return the sum of the parts, clipped after each addition."""
    total = np.zeros_like(parts[0])
    for part in parts:
        total = clip(total + part)
    return total


CHECK = Check(
    name=NAME,
    title="a step clips the whole gradient once, after it is reduced and unscaled",
    space=_space,
    stored=_stored,
    variants=_variants,
    judge=_judge,
    needs=(RIGHT_FORMULA, Need(LAYOUT, "unclipped gradients depend on the layout already")),
    not_applicable="only a whole training step clips",
    max_examples=12,
    linear_only=True,
)
