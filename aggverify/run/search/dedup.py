"""Whether two findings are the same failure, or of the same cause."""

from __future__ import annotations

import math
from fractions import Fraction

from aggverify.checks import Finding
from aggverify.oracles.bounds import PRECISIONS
from aggverify.steps.layouts import dimensions

SLIDE = Fraction(1, 1000)
"""A deviation below this part of the known one is another. A wrong factor never shrinks so far on a
smaller case, and a rounding in float32 is below it compared with any factor."""


def same_failure(found: Finding, other: Finding | None) -> bool:
    """Whether the other shows what was found.

    It is the same code, of the same term, by a deviation of that order; or the same exception. A
    rounding is no smaller case of a wrong factor.
    """
    if other is None or (found.code, found.term) != (other.code, other.term):
        return False
    if found.fault is not None:
        return raised_at(found) == raised_at(other)
    was, now = _size(found), _size(other)
    if was is None or now is None:
        return was is now
    return now >= SLIDE * was


def same_cause(known: Finding, other: Finding) -> bool:
    """Whether the other may be only the known one again, on a case that was not made small.

    The same thing is reported. Of the losses, the layouts must share a dimension if the known one
    has any; of a term they may be any.
    """
    if _key(known) != _key(other):
        return False
    mine = dimensions(known.case.layout)
    return not mine or known.term is not None or bool(mine & dimensions(other.case.layout))


def _key(found: Finding) -> tuple[object, ...]:
    what = found.traits.symptom or found.code
    finite = found.token is None or _is_finite(found, found.token)
    return what, found.traits.effect, found.term, raised_at(found), finite


def raised_at(found: Finding) -> tuple[str, str] | None:
    """Type and line of the exception that the finding is.

    Of ranks that wait for each other or issue different collectives, one may raise as well or be
    stopped before it does: that comes and goes, and is not the finding.
    """
    fault = found.fault
    error = None if fault is None or fault.kind != "exception" else fault.error
    return None if error is None else (error.type, error.candidate_line)


def _size(found: Finding) -> Fraction | None:
    """Return the deviation, relative to what is expected; None where it is no number."""
    token = found.token
    if found.error is None or (token is not None and not _is_finite(found, token)):
        return None
    if token is not None and found.expected is not None:
        expected = abs(found.expected[token])
        return found.error / expected if expected else Fraction(1)
    # Of sums: the bound is the size of what is added up, times some roundings.
    return found.error / found.bound * _unit(found) if found.bound else Fraction(1)


def _unit(found: Finding) -> Fraction:
    return PRECISIONS[found.case.dtype].unit_roundoff


def _is_finite(found: Finding, token: int) -> bool:
    return found.observed is None or math.isfinite(found.observed[token])
