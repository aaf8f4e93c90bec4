"""Two runs of a non-linear objective: the same value and the same gradient, in double precision.

No bound can be proven for an unknown function, so a fixed one is used; see docs/bounds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from aggverify.checks.base import Finding
from aggverify.codes import CODES
from aggverify.execution.executed import Execution, Weights
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

Bits = npt.NDArray[np.bool_]
BOUND = Fraction(1, 1 << 30)
"""Relative to the ``_scale`` of the gradient, or to |value| + sum |gradient * input|. Roundings
reach it only where the function's condition number times the number of operations on one token's
path passes 2^23; an exponential of a mean stays below 2^12 on the inputs used here."""
SELECTION = "AGV212"


def _scale(alone: Execution, kept: Bits) -> Fraction:
    """Return the largest entry of a gradient, or |value| over the sum of |input| if that is more.

    It never is for a linear function. For others every entry may be the small rest of large terms
    that cancel, and rounding is relative to these.
    """
    assert alone.weights is not None
    largest = Fraction(float(np.abs(alone.weights).max(initial=0.0)))
    inputs = float(np.abs(np.array(alone.case.losses))[kept].sum())
    return max(largest, abs(alone.value or Fraction(0)) / Fraction(max(inputs, 1.0)))


def _is_selection(kept: Bits, case: Case, alone: Weights, spread: Weights, splits: bool) -> bool:
    """Whether other unmasked tokens take part than on one rank (T18).

    A token that is let in was compared among fewer. One that is lost is evidence only for a code
    that ``splits``: shards cut wrongly lose tokens, too. The others of its place must be left, and
    keep their ratios: a statistic of values, such as a mean of one value, may leave nothing of it.
    """
    lost = kept & (alone != 0) & (spread == 0)
    let_in = kept & (alone == 0) & (spread != 0)
    if let_in.any() or not splits:
        return bool(let_in.any() and (kept & (alone != 0)).any())
    owner = np.array(token_owner(case.step, case.layout)).reshape(-1, 3)
    for at in np.unique(owner[lost], axis=0):
        stays = kept & (alone != 0) & (spread != 0) & (owner == at).all(axis=1)
        ratios = spread[stays] / alone[stays]
        if ratios.size and np.ptp(ratios) <= float(BOUND) * abs(ratios[0]):
            return True
    return False


def judge_two(
    name: str,
    code: str,
    subject: Subject,
    alone: Execution,
    spread: Execution,
    near: Fraction = BOUND,
) -> Finding | None:
    """Compare the gradient, then the value, of the step on one rank and as laid out.

    ``near``: relative.
    """
    assert alone.weights is not None and spread.weights is not None
    known = CODES[CODES[code].if_nonlinear or code]
    flat = np.frombuffer(b"".join(s.loss_mask for s in alone.case.step.samples), dtype=np.uint8)
    kept = flat.astype(bool)
    scale = _scale(alone, kept)
    off = np.abs(spread.weights - alone.weights)
    wrong = ~(off <= float(near * scale)) | (~kept & (alone.weights == 0) & (off > 0))
    expected = tuple(Fraction(w) for w in alone.weights.tolist())
    found = Finding(
        known.code,
        name,
        "",
        spread.case,
        subject.mode,
        expected,
        tuple(spread.weights.tolist()),
        "one rank, one micro-batch",
        bound=near * scale,
    )
    if wrong.any():
        compares = subject.compares is not None  # of a pair that is split both are left out
        moved = np.where(wrong, spread.weights, alone.weights)
        if not compares and _is_selection(kept, spread.case, alone.weights, moved, known.splits):
            found = replace(found, code=SELECTION)
        token = int(np.argmax(np.where(wrong, off, -1.0)))
        error = abs(Fraction(float(spread.weights[token])) - expected[token])
        return _with(found, f"the gradient at token {token} changes", token, error, near * scale)
    return _value(found, alone, spread, expected, near)


def _value(
    found: Finding,
    alone: Execution,
    spread: Execution,
    expected: Sequence[Fraction],
    near: Fraction,
) -> Finding | None:
    """Compare the values; where ``alone`` has none that is finite, another check finds it."""
    if alone.value is None:
        return None
    if spread.value is None:
        return _with(found, "the value is not finite", None, None, None)
    terms = (w * Fraction(x) for w, x in zip(expected, alone.case.losses, strict=True) if w)
    scale = abs(alone.value) + sum((abs(t) for t in terms), Fraction(0))
    error = abs(spread.value - alone.value)
    if error <= near * scale:
        return None
    message = f"the value is {float(spread.value)!r}, on one rank {float(alone.value)!r}"
    return _with(found, message, None, error, near * scale)


def _with(
    found: Finding,
    message: str,
    token: int | None,
    error: Fraction | None,
    bound: Fraction | None,
) -> Finding:
    return replace(found, message=message, token=token, error=error, bound=bound)
