"""Weights and scalars against exact ones, under proven bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aggverify.execution.executed import Weights, exact_sum
from aggverify.execution.subject import Subject
from aggverify.oracles.bounds import PRECISIONS, scalar_bound, weight_bound
from aggverify.steps.case import Case

LOW = ("bfloat16", "float16")
_MOST_ACCUMULATED = {"float64": Fraction(1), "float32": Fraction(1, 1 << 12)}
"""Precisions in which a Mismatch has a ``limit``, and the part of the weight that it is at most. In
float32 the rounding of many tokens can be as large as a mistake: one token more in a count of some
thousand, or a factor of 1 + 1e-6."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The worst token (or the scalar, with ``token`` None) beyond its bound."""

    token: int | None
    error: Fraction
    bound: Fraction
    exact: Fraction = Fraction(0)
    limit: Fraction = Fraction(0)
    """Up to here it may be rounding of what is added up and taken away again on the way, which the
    bound does not know of: a difference of running sums, a value behind ``detach``."""

    @property
    def accumulated(self) -> bool:
        """Whether the error is within ``limit``."""
        return 0 < self.error <= self.limit


def lowest_precision(subject: Subject, case: Case) -> str:
    """Return the lowest precision on the path: the case's dtype or the candidate's own."""
    return min(case.dtype, subject.computes_in, key=lambda name: PRECISIONS[name].p)


@lru_cache(maxsize=64)
def _relative(roundings: int, precision: str) -> float:
    """Return a float below the relative part of the weight bound, less one float64 rounding."""
    bound = weight_bound(Fraction(1), roundings, PRECISIONS[precision])
    return float(bound) * (1 - 2**-20) - 2**-53


_LAST: list[tuple[Sequence[Fraction], Weights]] = []


def as_floats(weights: Sequence[Fraction]) -> Weights:
    """Exact weights rounded to float64, to be read only; those asked for last are kept."""
    if _LAST and _LAST[0][0] is weights:
        return _LAST[0][1]
    found = _rounded(weights)
    found.flags.writeable = False
    if isinstance(weights, tuple):
        _LAST[:] = [(weights, found)]
    return found


def _rounded(weights: Sequence[Fraction]) -> Weights:
    """Tokens that share a Fraction share the work."""
    ids = np.fromiter(map(id, weights), np.int64, count=len(weights))
    _, first, each = np.unique(ids, return_index=True, return_inverse=True)
    return np.array([float(weights[n]) for n in first.tolist()], dtype=np.float64)[each]


def worst_weight(
    observed: Weights, expected: Sequence[Fraction], roundings: int, precision: str
) -> Mismatch | None:
    """Return the token whose weight is furthest beyond its bound, or None when all are within.

    Tokens whose weight is exactly 0 must be exactly 0 (of either sign).
    """
    rounded = as_floats(expected)
    with np.errstate(invalid="ignore"):
        near = np.abs(observed - rounded) <= _relative(roundings, precision) * np.abs(rounded)
    if near.all():
        return None
    worst: Mismatch | None = None
    far = np.flatnonzero(~near)
    # Equal pairs need one look, and a long response has many.
    _, first = np.unique(observed[far] + 1j * rounded[far], return_index=True)
    for i in far[np.sort(first)].tolist():
        found = float(observed[i])
        if not np.isfinite(found):
            return Mismatch(i, Fraction(0), Fraction(0))
        error = abs(Fraction(found) - expected[i])
        bound = (
            weight_bound(expected[i], roundings, PRECISIONS[precision])
            if expected[i]
            else Fraction(0)
        )
        if error > bound and (worst is None or error > worst.error):
            worst = Mismatch(i, error, bound)
    if worst is None or worst.token is None or not rounded[far].all():
        return worst
    most = _MOST_ACCUMULATED.get(precision)
    if most is None or (most < 1 and _is_a_factor(observed, rounded, near)):
        return worst
    limit = _accumulated(rounded, roundings, precision)
    return replace(worst, limit=min(limit, most * abs(expected[worst.token])))


def _is_a_factor(observed: Weights, exact: Weights, near: npt.NDArray[np.bool_]) -> bool:
    """Whether every weight is beyond its bound on the same side.

    Rounding of running sums leaves some within their bounds.
    """
    kept = exact != 0
    sides = np.sign(observed[kept] - exact[kept])
    return not near[kept].any() and len(set(sides.tolist())) == 1


def _accumulated(weights: Weights, roundings: int, precision: str) -> Fraction:
    """Return the bound of a sum of all weights, with an addition for each place where they change.

    There, between two samples, the difference of their weights is what a running sum adds.
    """
    total = Fraction(float(np.abs(weights).sum()))
    changes = int(np.count_nonzero(np.diff(weights)))
    return scalar_bound(total, changes, roundings, PRECISIONS[precision])


MOST_LOST = Fraction(1, 8)
"""The part of a sum of numbers of one sign that a few roundings to 16 bits lose at most."""


def stalls(case: Case, value: Fraction, exact: Fraction) -> bool:
    """Whether a sum in 16 bits has stopped growing, or lost more than a few roundings can.

    The proven bound cannot show it: for a long sum in 16 bits it is vacuous.
    """
    kept = [x for x in case.losses if x]
    one_sign = all(x > 0 for x in kept) or all(x < 0 for x in kept)
    return case.dtype in LOW and one_sign and abs(value - exact) > MOST_LOST * abs(exact)


def scalar_mismatch(
    subject: Subject, case: Case, value: Fraction, expected: Sequence[Fraction]
) -> Mismatch | None:
    """Return how the reported scalar is off from sum(w*l), None where rounding can explain it.

    None, too, for the sum that a loss of log-probabilities may report instead. Only terms that are
    not 0 count as additions: adding zeros is exact.
    """
    found = _off(subject, case, value, expected)
    instead = subject.reports_instead(case) if found is not None else None
    if instead is not None and _off(subject, instead, value, expected) is None:
        return None
    return found


def _off(
    subject: Subject, case: Case, value: Fraction, expected: Sequence[Fraction]
) -> Mismatch | None:
    exact, magnitude, number = weighted_sum(expected, case.losses)
    precision = PRECISIONS[lowest_precision(subject, case)]
    additions = max(number - 1, 0)
    roundings = subject.roundings_on(case.step) + 1
    bound = scalar_bound(magnitude, additions, roundings, precision)
    error = abs(value - exact)
    if error <= bound:
        return None
    # A reducer may add up the losses first and divide the sum.
    losses = [abs(x) for w, x in zip(expected, case.losses, strict=True) if w]
    total = max(magnitude, exact_sum(losses))
    limit = scalar_bound(total, additions, roundings, precision)
    return Mismatch(None, error, bound, exact, limit)


def weighted_sum(
    weights: Sequence[Fraction], losses: Sequence[float]
) -> tuple[Fraction, Fraction, int]:
    """Return ``sum w*l`` and ``sum |w*l|``, exact, and how many terms of them are not 0.

    Losses are finite. Those that share a Fraction are added up before it is multiplied.
    """
    distinct = {id(weight): weight for weight in weights}
    shared: dict[int, list[float]] = {at: [] for at, weight in distinct.items() if weight}
    for at, loss in zip(map(id, weights), losses, strict=True):
        if loss and at in shared:
            shared[at].append(loss)
    exact = magnitude = Fraction(0)
    for at, added in shared.items():
        exact += distinct[at] * exact_sum(added)
        magnitude += abs(distinct[at]) * exact_sum(list(map(abs, added)))
    return exact, magnitude, sum(map(len, shared.values()))


def margin(
    observed: Weights, expected: Sequence[Fraction], roundings: int, precision: str
) -> float:
    """Largest error over bound among unmasked tokens; at most 1 for weights within bounds."""
    # Tokens of one sample share both weights: few pairs are distinct.
    exact = dict(zip(map(id, expected), expected, strict=True))
    pairs = set(zip(map(id, expected), observed.tolist(), strict=True))
    shares = (_share(found, exact[w], roundings, precision) for w, found in pairs if exact[w])
    return max(shares, default=0.0)


@lru_cache(maxsize=4096)
def _share(found: float, exact: Fraction, roundings: int, precision: str) -> float:
    if not np.isfinite(found):
        return float("inf")
    bound = weight_bound(exact, roundings, PRECISIONS[precision])
    return float(abs(Fraction(found) - exact) / bound)
