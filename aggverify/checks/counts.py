"""T11: token counts and their accumulation, where 16-bit formats stop counting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from aggverify.checks.base import (
    COUNTS,
    EXACT_COUNTS,
    RIGHT_FORMULA,
    Check,
    Finding,
    failure_finding,
)
from aggverify.checks.comparison import LOW, lowest_precision, worst_weight
from aggverify.checks.spaces import alone
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.oracles.bounds import PRECISIONS
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout

NAME = "counts_are_exact"
CODE, OTHERWISE = "AGV301", "AGV101"
"""A count that its format does not hold; and a long response that is wrong of something else."""
LARGE = "counts_are_exact_beyond_float32"
BEYOND = 2**24 + 1
"""Tokens that float32 cannot count: with float64 losses that is 6e-8 of every weight."""
LONG_ONES = "right for short responses, wrong for long ones"
MOST_ROUNDED = Fraction(1, 8)
"""The part of a weight that a 16-bit accumulator that does not stall changes at most."""
FEW_BITS = PRECISIONS["float16"].p
"""Significand bits that a number kept in 16 bits has at most."""
_LARGEST_HALF = 65_504
_COMPARED = 4_097
"""Weights at each end that a count that is wrong must explain."""
LENGTHS = (257, 2049, 4097)
"""One more than bfloat16 counts to one by one, than float16 does, and a bfloat16 spacing of 32."""


def space(subject: Subject) -> Space:
    """Long responses on one rank; losses in every dtype."""
    dtypes = ("float32", "float64", "bfloat16", "float16")
    return alone(subject, lengths=LENGTHS, max_extra_samples=2, dtypes=dtypes)


def _judge(name: str, subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge weights only: at this length the scalar's own bound is too wide."""
    failed = failure_finding(name, subject, executions[0])
    case, weights = executions[0].case, executions[0].weights
    if failed is not None or weights is None:
        return failed
    expected = subject.expected(case.step)
    if expected is None:
        return None
    precision = lowest_precision(subject, case)
    found = worst_weight(weights, expected, subject.roundings_on(case.step), precision)
    if found is None:
        return None
    observed = tuple(weights.tolist())
    assert found.token is not None
    # Beyond float32 a miscount is as small as such rounding: it must not be taken for it.
    limit = found.limit if len(expected) < BEYOND else Fraction(0)
    message = _miscount(case, found.token, expected, observed, precision)
    counted = message or _rounded(subject, executions, found.token, expected)
    code, message = CODE if counted else OTHERWISE, message or LONG_ONES
    finding = Finding(code, name, message, case, subject.mode, expected, observed)
    return replace(finding, token=found.token, error=found.error, bound=found.bound, limit=limit)


def _miscount(
    case: Case,
    token: int,
    expected: Sequence[Fraction],
    observed: Sequence[float],
    precision: str,
) -> str:
    """Which count would have to be miscounted, and what miscounts it so; "" for none."""
    weight = observed[token]
    if not math.isfinite(weight) or (not weight and _overflows(case.step)):
        return f"the weight is {weight!r}: a count overflowed or underflowed"
    if not weight or not expected[token]:
        return ""
    for what, tokens in _counts(case):
        count = len(tokens)
        # Weights themselves were rounded a few times on their way.
        near = max(16 * count * float(PRECISIONS[precision].unit_roundoff), 1e-9 * count)
        ends = {token, *tokens[:_COMPARED], *tokens[-_COMPARED:]}
        used = [count * float(expected[t]) / observed[t] if observed[t] else 0.0 for t in ends]
        for how, wrong in _miscounted(count):
            # It divides all of them: a chunk with another count than the next is something else.
            if wrong != count and all(abs(each - wrong) <= near for each in used):
                return f"behaves as if the {count} tokens of the {what} were {wrong}: {how}"
    return ""


def _overflows(step: Step) -> bool:
    """Whether what is counted, times the samples, is more than float16 has numbers for."""
    return step.num_unmasked * len(step.samples) > _LARGEST_HALF


def _rounded(
    subject: Subject, executions: Sequence[Execution], token: int, expected: Sequence[Fraction]
) -> bool:
    """Whether the weight is wrong because it was computed in 16 bits.

    All tokens of the response must be off, and by little: otherwise tokens are left out or weighed
    differently. 16-bit losses must be right in float64; a wrong weight of wider losses must itself
    have as few bits as a 16-bit number.
    """
    case, weights = executions[0].case, executions[0].weights
    assert weights is not None
    seen, right = float(weights[token]), expected[token]
    if not right or abs(Fraction(seen) / right - 1) > MOST_ROUNDED:
        return False
    starts = case.step.offsets
    place = max(n for n, start in enumerate(starts[: len(case.step.samples)]) if start <= token)
    mask, first = case.step.samples[place].loss_mask, starts[place]
    own = [float(weights[first + t]) for t, bit in enumerate(mask) if bit]
    if any(abs(weight / seen - 1) > MOST_ROUNDED for weight in own):
        return False
    if case.dtype in LOW:
        return all(_is_right(subject, each, expected) for each in executions[1:])
    units = (1, case.step.num_rollouts, case.step.num_groups, len(case.step.samples))
    return any(_has_few_bits(seen * unit, case.dtype) for unit in units)


def _is_right(subject: Subject, execution: Execution, expected: Sequence[Fraction]) -> bool:
    precision = lowest_precision(subject, execution.case)
    roundings = subject.roundings_on(execution.case.step)
    return execution.weights is not None and (
        worst_weight(execution.weights, expected, roundings, precision) is None
    )


def _has_few_bits(number: float, dtype: str) -> bool:
    """Whether 16 bits hold the number, but for a few roundings in its own dtype."""
    scaled = math.ldexp(math.frexp(number)[0], FEW_BITS)
    near = math.ldexp(16 * float(PRECISIONS[dtype].unit_roundoff), FEW_BITS)
    return abs(scaled - round(scaled)) <= near


def _and_in_double(case: Case) -> tuple[Case, ...]:
    """Return the step on one rank, and for losses in 16 bits also in float64."""
    alone = case.trivial
    return (alone, replace(alone, dtype="float64")) if case.dtype in LOW else (alone,)


def _counts(case: Case) -> Iterator[tuple[str, list[int]]]:
    """Yield the unmasked tokens of the step, of prompt groups and of rollouts."""
    step, starts = case.step, case.step.offsets
    own = [
        np.flatnonzero(np.frombuffer(sample.loss_mask, np.uint8)) + starts[i]
        for i, sample in enumerate(step.samples)
    ]
    yield "step", np.concatenate(own).tolist()
    for units, what in ((step.groups, "prompt group"), (step.rollouts, "rollout")):
        for members in units.values():
            yield what, np.concatenate([own[i] for i in members]).tolist()


def _miscounted(count: int) -> Iterator[tuple[str, int]]:
    # The highest first: a lower one fails at a smaller count already, and is shrunk to that.
    for name in ("float32", "float16", "bfloat16"):
        p = PRECISIONS[name].p
        spacing = max(1, 1 << max(count.bit_length() - p, 0))
        yield f"the count is rounded to {name}", round(Fraction(count, spacing)) * spacing
        yield f"a sequential {name} accumulator stalls", min(count, 1 << p)


def _distinguishing_cases(subject: Subject) -> tuple[Case, ...]:
    """Return cases whose lengths, counted rightly, distinguish one 16-bit format from the other."""
    if subject.group_size or subject.rows or subject.oracle is not None:
        return ()
    steps = [Step((Sample(1, b"\1" * length, 0, 0),)) for length in LENGTHS]
    return tuple(Case(step, Layout.trivial(1), plain_losses(step)) for step in steps)


CHECK = Check(
    name=NAME,
    title="long responses are counted exactly, whatever the losses' dtype",
    tests="T11",
    space=space,
    variants=_and_in_double,
    judge=partial(_judge, NAME),
    project=lambda case: case.trivial,
    aspect=COUNTS,
    needs=(RIGHT_FORMULA,),
    distinguishing_cases=_distinguishing_cases,
    max_examples=24,
    linear_only=True,
)


def _beyond_float32(subject: Subject) -> tuple[Case, ...]:
    """One response with more tokens than float32 counts, its losses in float64."""
    step = Step((Sample(1, b"\1" * BEYOND, 0, 0),))
    return (Case(step, Layout.trivial(1), (1.0,) * BEYOND),)


BEYOND_FLOAT32 = Check(
    name=LARGE,
    title="2^24 + 1 tokens are counted exactly where losses are float64",
    tests="T11",
    space=lambda subject: Space(lengths=(BEYOND,)),
    judge=partial(_judge, LARGE),
    project=lambda case: case.trivial,
    only=_beyond_float32,
    thorough=True,
    linear_only=True,
    needs=(RIGHT_FORMULA, EXACT_COUNTS),
)
