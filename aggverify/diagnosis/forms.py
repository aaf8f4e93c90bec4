"""The closed form a reducer computes: ``upper * sizes / (inner * outer)``, found by matching.

*inner* counts something in the token's own unit, *outer* counts units, *sizes* is a product of
parallel sizes, perhaps times a constant. Mistakes of this field are of that shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np

from aggverify.diagnosis.observation import TOLERANCE, Array, WeightObservation
from aggverify.diagnosis.terms import Term, Tokens, inner_terms, outer_terms, upper_terms
from aggverify.steps.case import Case

SIZES = ("dp_size", "cp_size", "num_microbatches")
_CONSTANT_COST = 5
_SCREENED = 8
"""Observations that every combination is tried on first."""
_MAX_PART, _MAX_WHOLE = 64, 1 << 20
"""Of a constant that a person would write: its smaller number and its larger one are at most so."""


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """``weight = constant * upper * product(size**exponent) / (inner * outer)``."""

    inner: Term | None
    outer: tuple[Term, ...]
    exponents: tuple[int, ...]
    upper: Term | None = None
    constant: Fraction = Fraction(1)

    @property
    def sentence(self) -> str:
        """The form in words, layout names as the field has them."""
        below = [t.text for t in (self.inner, *self.outer) if t is not None]
        above = ["l"] if self.constant.numerator == 1 else [f"{self.constant.numerator} l"]
        above += [self.upper.text] if self.upper is not None else []
        for name, exponent in zip(SIZES, self.exponents, strict=True):
            if exponent > 0:
                above.append(name)
            elif exponent < 0:
                below.append(name)
        if self.constant.denominator != 1:
            below.insert(0, str(self.constant.denominator))
        top = " x ".join(above)
        if len(below) == 1 and " " not in below[0]:
            return f"sum of {top} / {below[0]}"
        return f"sum of {top} / ({' x '.join(below)})" if below else f"sum of {top}"

    @property
    def is_a_number(self) -> bool:
        """Whether every token has one weight, whatever the step."""
        counts = (self.inner, self.upper, *self.outer)
        return not any(counts) and not any(self.exponents) and self.constant.numerator == 1

    @property
    def cost(self) -> int:
        """Complexity: of several fitting forms the simplest is reported."""
        terms = [t for t in (self.inner, *self.outer, self.upper) if t is not None]
        return (
            2 * sum(map(abs, self.exponents))
            + sum(t.cost for t in terms)
            + 2 * (self.upper is not None)
            + _CONSTANT_COST * (self.constant != 1)
        )

    def predict(self, cases: Sequence[Case]) -> Array:
        """Weights of the unmasked tokens of some cases, one after the other."""
        tokens = Tokens(cases)
        out = np.full(int(tokens.keep.sum()), float(self.constant))
        for term in (self.inner, *self.outer):
            if term is not None:
                out /= tokens.values(term)
        if self.upper is not None:
            out *= tokens.values(self.upper)
        sizes = np.array([parallel_sizes(case) for case in cases], dtype=np.float64)
        factors = np.prod(sizes ** np.array(self.exponents), axis=1)
        weights: Array = out * factors[tokens.case[tokens.keep]]
        return weights


def parallel_sizes(case: Case) -> tuple[int, int, int]:
    """In the order of SIZES."""
    layout = case.layout
    return layout.dp_size, layout.cp_size, layout.num_microbatches


def closed_forms(
    observations: Sequence[WeightObservation], *, partial: bool = False
) -> list[ClosedForm]:
    """All forms that equal the observed weights on every observation, the simplest first.

    ``partial``: those that are not 0.
    """
    usable = [o for o in observations if (o.observed[o.mask] != 0).any() or not partial]
    usable = [o for o in usable if o.case.step.num_unmasked]
    if not usable or any(not (np.isfinite(o.observed) & (o.observed >= 0)).all() for o in usable):
        return []
    if any(o.observed[~o.mask].any() for o in usable):
        return []
    if not partial and any((o.observed[o.mask] == 0).any() for o in usable):
        return []
    table = _Table(usable)
    found = sorted(table.search((None,)), key=lambda f: f.cost)
    return found or sorted(table.search(tuple(upper_terms())), key=lambda f: f.cost)


def distinguishing_case_of(forms: Sequence[ClosedForm], cases: Sequence[Case]) -> Case | None:
    """Return the first case for which the first form and another one foretell other weights."""
    if len(forms) < 2 or not cases:
        return None
    first = forms[0].predict(cases)
    tokens = Tokens(cases)
    which = tokens.case[tokens.keep]
    differs = np.zeros(len(first), dtype=bool)
    for form in forms[1:]:
        differs |= np.abs(form.predict(cases) - first) > TOLERANCE * first
    return cases[int(which[differs][0])] if differs.any() else None


class _Table:
    """Logarithms of every term on the unmasked tokens, observations one after the other.

    Neighbours that no term distinguishes, as in a long response, are kept as two tokens: one with
    their least weight, and one with the largest.
    """

    def __init__(self, observations: Sequence[WeightObservation]) -> None:
        cases = [o.case for o in observations]
        self._tokens = Tokens(cases)
        weights: Array = np.concatenate([o.observed[o.mask] for o in observations])
        terms = dict.fromkeys((*inner_terms(), *upper_terms()))
        terms |= dict.fromkeys(term for outer in outer_terms() for term in outer)
        seen = weights != 0
        which, weights = self._tokens.case[self._tokens.keep][seen], np.log(weights[seen])
        logs = {term: self._log(term, seen) for term in terms}
        apart = np.diff(which, prepend=-1) != 0
        for row in logs.values():
            apart[1:] |= row[1:] != row[:-1]
        groups = np.flatnonzero(apart)
        ends = [part.reduceat(weights, groups) for part in (np.minimum, np.maximum)]
        self._weights: Array = np.stack(ends, axis=1).ravel()
        self._fits = bool((ends[1] - ends[0] <= TOLERANCE).all())
        kept = np.repeat(groups, 2)
        which = which[kept]
        self._logs: dict[Term | None, Array] = {None: np.zeros(len(kept))}
        self._logs |= {term: log[kept] for term, log in logs.items()}
        self._starts = np.flatnonzero(np.diff(which, prepend=-1))
        chosen = np.unique(np.linspace(0, len(cases) - 1, _SCREENED).astype(np.int64))
        columns = np.flatnonzero(np.isin(which, chosen))
        self._screen = columns, np.flatnonzero(np.diff(which[columns], prepend=-1))
        self._sizes = np.log([parallel_sizes(case) for case in cases]).reshape(-1, len(SIZES))
        self._monomials = np.array(exponents(), dtype=np.float64) @ self._sizes.T
        self._outers = [(), *outer_terms()]
        zero = self._logs[None]
        self._outer_logs = np.stack([sum((self._logs[t] for t in o), zero) for o in self._outers])

    def _log(self, term: Term, seen: Array) -> Array:
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self._tokens.values(term)[seen])
        return logs

    def search(self, uppers: tuple[Term | None, ...]) -> Iterator[ClosedForm]:
        """Yield every form with one of these uppers that fits.

        No form fits where tokens that no term distinguishes have different weights.
        """
        if not self._fits:
            return
        upper_logs = [self._logs[upper] for upper in uppers]
        for inner in (None, *inner_terms()):
            inner_log = self._weights + self._logs[inner]
            for upper, upper_log in zip(uppers, upper_logs, strict=True):
                for row, constants in self._constant(inner_log - upper_log):
                    for exponents, constant in self._monomial(constants):
                        yield ClosedForm(inner, self._outers[row], exponents, upper, constant)

    def _constant(self, base: Array) -> Iterator[tuple[int, Array]]:
        """Outers with which nothing varies inside any observation, with the value in each.

        A few observations sort most of them out before all are looked at.
        """
        rows = np.arange(len(self._outers))
        for columns, starts in (self._screen, (slice(None), self._starts)):
            with np.errstate(invalid="ignore"):
                rest = base[columns] + self._outer_logs[rows][:, columns]
                high = np.maximum.reduceat(rest, starts, axis=1)
                low = np.minimum.reduceat(rest, starts, axis=1)
                flat = (high - low <= TOLERANCE).all(axis=1)
            rows, low = rows[flat], low[flat]
            if not rows.size:
                return
        yield from zip(rows.tolist(), low, strict=True)

    def _monomial(self, values: Array) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        """Products of sizes (times one constant) that equal the values in every observation."""
        difference = values - self._monomials
        fits = np.ptp(difference, axis=1) <= TOLERANCE
        for row in np.flatnonzero(fits).tolist():
            powers = exponents()[row]
            if any(e and not self._sizes[:, i].any() for i, e in enumerate(powers)):
                continue  # a size that is 1 everywhere is no evidence
            constant = _simple(float(np.exp(difference[row].mean())))
            if constant is not None:
                yield powers, constant


@cache
def exponents() -> tuple[tuple[int, ...], ...]:
    """Products of sizes: the power of each."""
    return tuple(product((0, 1, -1), repeat=len(SIZES)))


def _simple(value: float) -> Fraction | None:
    """Return the fraction a person would have written, or None."""
    for found in (_near(value), _inverse(_near(1 / value))):
        if found and abs(float(found) - value) <= TOLERANCE * value:
            small = min(found.numerator, found.denominator) <= _MAX_PART
            return (
                found if small and max(found.numerator, found.denominator) <= _MAX_WHOLE else None
            )
    return None


def _near(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_MAX_PART)


def _inverse(value: Fraction) -> Fraction:
    return 1 / value if value else value
