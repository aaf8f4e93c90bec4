"""Counts of a step far larger than what is run of it: the rest lies with other ranks.

The first of two data-parallel ranks is run by itself, and one more prompt of one rollout is counted
that the other has; so a count may be as large as in training, where 32 bits overflow. A reducer
that asks the other rank, as its trace shows, counts for itself: it is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks.base import EXACT_COUNTS, RIGHT_FORMULA, Check, Finding
from aggverify.checks.comparison import as_floats, lowest_precision, worst_weight
from aggverify.checks.spaces import spread
from aggverify.engines.emulated import EmulatedEngine
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.oracles.bounds import PRECISIONS
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout, token_owner
from aggverify.steps.notation import parse_micro_batches, parse_step

NAME = "counts_of_a_larger_step"
CODE, OTHERWISE = "AGV301", "AGV203"
"""A count that its type does not hold; weights that change otherwise with what others have."""
FEW = 3
"""Tokens on the other rank, as a control: what is wrong with so few is not about large counts."""
ELSEWHERE = (2**24 + 1, 2**31, 2**33)
"""Tokens: more than float32 counts one by one, than 32 bits hold with a sign and without."""
_LARGEST = (
    *(2 ** PRECISIONS[name].p for name in ("bfloat16", "float16", "float32")),
    65_504,
    *(2**bits - 1 for bits in (7, 8, 15, 16, 31, 32)),
)
"""Where counting one by one stalls, and the largest numbers of types."""
_WRAPS = (8, 16, 32)
"""Bits of integers that wrap around."""
_ROUNDED = Fraction(1, 2**7)
"""The part of a count that rounding to 16 bits changes at most."""
_NEAR = 2.0**-20
"""The part of a count by which one that was divided by in float32 is recognised."""
_STEPS = (("1/1; 1/1", "0 | 1"), ("2/1101 1/11; 3/111 1/1", "0,1 | 2,3"))


def space(subject: Subject) -> Space | None:
    """Two ranks; None where the rest of a step cannot be pretended, or its weights not foretold."""
    if not getattr(subject.convention, "takes_elsewhere", False) or subject.found.communicates:
        return None
    if not isinstance(subject.engine, EmulatedEngine) or _divides_by_counts(subject.engine):
        return None
    if subject.mode is None or subject.oracle is not None or subject.group_size is not None:
        return None
    if subject.rows is not None:
        return None  # more samples would be more micro-batches
    found = spread(subject, dp=2, cp=1, micro_batches=1, dtypes=("float64",))
    return found if found.max_dp == 2 else None


def _divides_by_counts(engine: EmulatedEngine) -> bool:
    """Whether the engine needs a count of the whole step, of which only a part is run."""
    factors = (*engine.scale, *engine.before_reduction, *engine.after_reduction)
    return any(factor.size in ("num_rollouts", "num_tokens") for factor in factors)


def _listed(subject: Subject) -> Iterator[Case]:
    for text, cells in _STEPS:
        step = parse_step(text)
        yield Case(step, Layout(parse_micro_batches(cells)), plain_losses(step))


def _variants(case: Case) -> tuple[Case | RunSpec, ...]:
    return case, *(RunSpec(case, elsewhere=tokens, virtual=(0,)) for tokens in (FEW, *ELSEWHERE))


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge weights within what float32 makes of a count.

    That it cannot hold one token more is reported elsewhere, and so is what the candidate does not
    get through or weighs wrongly whatever the count.
    """
    case, few, *larger = executions
    if _judged(subject, few, FEW) is not None:
        return None
    for tokens, execution in zip(ELSEWHERE, larger, strict=True):
        found = _judged(subject, execution, tokens)
        if found is not None:
            return replace(found, case=case.case)
    return None


def _judged(subject: Subject, execution: Execution, tokens: int) -> Finding | None:
    case = execution.case
    expected = weights_with_prompt(subject, case.step, tokens)
    if execution.weights is None or execution.communicates or expected is None:
        return None
    mine = [rank == 0 for rank, _, _ in token_owner(case.step, case.layout)]
    weights = np.where(mine, execution.weights, as_floats(expected))
    exact = (lowest_precision(subject, case), "float32")
    precision = min(exact, key=lambda name: PRECISIONS[name].p)
    found = worst_weight(weights, expected, subject.roundings_on(case.step), precision)
    if found is None or found.token is None:
        return None
    observed = tuple(weights.tolist())
    message = (
        f"with {tokens:,} more tokens on the other rank the weight of token {found.token} is "
        f"{observed[found.token]!r}, not {float(expected[found.token])!r}"
    )
    counted = _is_miscount(case.step, tokens, observed[found.token], expected[found.token])
    if counted:
        held = "32 bits do not hold" if tokens > 2**30 else "is too large for its type"
        message += f": a count that {held}"
    code = CODE if counted else OTHERWISE
    made = Finding(code, NAME, message, case, subject.mode, expected, observed)
    return replace(made, token=found.token, error=found.error, bound=found.bound)


def _is_miscount(step: Step, tokens: int, weight: float, expected: Fraction) -> bool:
    """Whether a wrong weight is divided by what a type makes of a count.

    The count is of all tokens, or of the other rank's.
    """
    if not expected:
        return False  # masked: no count gives it a weight
    if not weight or not math.isfinite(weight):
        return True
    own, total = step.num_unmasked, step.num_unmasked + tokens
    used = total * float(expected) / weight
    if abs(used / total - 1) <= _ROUNDED:
        return True
    wrapped = [total % 2**bits for bits in _WRAPS]
    signed = [rest - 2**bits for rest, bits in zip(wrapped, _WRAPS, strict=True)]
    # A negative count is often clamped to 1; this rank's own tokens may be counted separately.
    each = (1, *_LARGEST, *wrapped, *signed)
    return any(abs(used - count) <= own + 1 + _NEAR * abs(count) for count in each)


def weights_with_prompt(subject: Subject, step: Step, tokens: int) -> tuple[Fraction, ...] | None:
    """Return the weights of a step's tokens with one more prompt of so many tokens.

    So large a step is not made: its weights follow from one, two and three more tokens, if a
    weight's denominator grows by the same with each; None where it does not.
    """
    one, two, three = (_with(subject, step, count) for count in (1, 2, 3))
    if one is None or two is None or three is None:
        return None
    found = []
    for first, second, third in zip(one, two, three, strict=True):
        if not (first and second and third):
            found.append(Fraction(0))
            if first or second or third:
                return None
            continue
        grows = 1 / second - 1 / first
        if 1 / third - 1 / second != grows:
            return None
        found.append(1 / (1 / first + (tokens - 1) * grows))
    return tuple(found)


def _with(subject: Subject, step: Step, tokens: int) -> tuple[Fraction, ...] | None:
    rollout, group = 1 + max(step.rollouts), 1 + max(step.groups)
    more = Step((*step.samples, Sample(1, b"\1" * tokens, rollout, group)))
    expected = subject.expected(more)
    return None if expected is None else expected[: step.num_response_tokens]


CHECK = Check(
    name=NAME,
    title="counts of up to 2^33 tokens, of which nearly all are other ranks'",
    space=space,
    variants=_variants,
    judge=_judge,
    only=_listed,
    as_found=True,
    linear_only=True,
    needs=(RIGHT_FORMULA, EXACT_COUNTS),
)
