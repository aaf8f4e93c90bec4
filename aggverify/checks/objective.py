"""A non-linear objective that is known: its value, and the gradient by every token.

Its argument is a sum over tokens, which the reducer rounds. The exact argument lies in a known
interval, and a function that is monotone on each side of its turning point is there bounded by its
values at the ends. The function itself takes as many roundings as a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from aggverify.checks.base import Finding
from aggverify.checks.comparison import lowest_precision
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.oracles import Objective, Step
from aggverify.oracles.bounds import PRECISIONS, relative
from aggverify.oracles.evaluate import unmasked_sums
from aggverify.oracles.objectives import arguments, at

GRADIENT, VALUE = "AGV101", "AGV102"
_FUNCTIONS = 9
"""Roundings of an exponential and a logarithm, on top of a weight's, and of what is expected."""
_CUT = Fraction(1, 1 << 200)
"""A slope this near to a short fraction is taken for it: more of its bits are known than that."""
Function = Callable[[Any], Any]


def judge_objective(name: str, subject: Subject, ran: Execution) -> Finding | None:
    """Judge a step on one rank: its gradient, then its value."""
    objective, case = subject.objective, ran.case
    if objective is None or ran.weights is None:
        return None
    seen = _Seen(subject, objective, ran)
    expected, bounds = seen.gradient()
    off = [
        abs(Fraction(w) - e) - bound
        for w, e, bound in zip(ran.weights.tolist(), expected, bounds, strict=True)
    ]
    observed = tuple(ran.weights.tolist())
    found = Finding(GRADIENT, name, "", case, None, expected, observed, objective.name)
    if max(off, default=Fraction(0)) > 0:
        token = max(range(len(off)), key=off.__getitem__)
        error = abs(Fraction(observed[token]) - expected[token])
        return replace(found, token=token, error=error, bound=bounds[token])
    value, bound = seen.value()
    if ran.value is None or abs(ran.value - value) <= bound:
        return None  # another check reports one that is not finite
    message = f"the loss is {float(ran.value)!r}, {objective.name} is {float(value)!r}"
    error = abs(ran.value - value)
    return replace(found, code=VALUE, message=message, error=error, bound=bound)


class _Seen:
    """The exact numbers of one step, with what roundings may make of them."""

    def __init__(self, subject: Subject, objective: Objective, ran: Execution) -> None:
        case, policy = ran.case, subject.policy
        self._objective, self._step = objective, case.step
        self._units = objective.units(case.step, policy)
        self._number = objective.number(case.step, policy)
        self._z = arguments(self._units, unmasked_sums(case.step, case.losses))
        dtype = lowest_precision(subject, case)
        if ran.weights is not None and (ran.weights == ran.weights.astype(np.float32)).all():
            # Float32 holds all weights, so it may have computed in that.
            dtype = "float32" if dtype == "float64" else dtype
        self._unit = PRECISIONS[dtype].unit_roundoff
        self._growth = relative(subject.roundings_on(case.step) + _FUNCTIONS, PRECISIONS[dtype])
        self._around = [self._off(parts, case.losses) for parts in self._units]

    def _off(self, parts: Sequence[tuple[int, Fraction]], losses: Sequence[float]) -> Fraction:
        """Return how far the argument of a unit may be rounded.

        Every input and every addition once, and what inputs are the difference of.
        """
        step, tokens, size = self._step, 0, Fraction(0)
        for i, times in parts:
            start, mask = step.offsets[i], step.samples[i].loss_mask
            own = [abs(Fraction(losses[start + t])) + 1 for t, bit in enumerate(mask) if bit]
            tokens += len(own)
            size += abs(times) * sum(own, Fraction(0))
        return (tokens + 4) * self._unit * size

    def _apart(self, function: Function) -> list[tuple[Fraction, Fraction]]:
        """Return the function at every unit's argument, and how far from there it may be."""
        found, rest = [], abs(at(function, Fraction(0)))
        for z, off in zip(self._z, self._around, strict=True):
            exact, low, high = (at(function, z + e) for e in (Fraction(0), -off, off))
            moved = max(abs(low - exact), abs(high - exact))
            # What is near 0 far from rest is often a difference from 1.
            found.append((exact, moved + self._growth * max(abs(exact), rest)))
        return found

    def gradient(self) -> tuple[tuple[Fraction, ...], list[Fraction]]:
        """Return the exact gradient by every token, and how far off each entry may be."""
        weights = [[Fraction(0), Fraction(0)] for _ in self._step.samples]
        slopes = self._apart(self._objective.slope)
        for parts, (exact, bound) in zip(self._units, slopes, strict=True):
            for i, times in parts:
                weights[i][0] += exact * times / self._number
                weights[i][1] += bound * abs(times) / self._number
        flat = _by_token(self._step)
        plain = [_plain(exact) for exact, _ in weights]
        return tuple(plain[i] * bit for i, bit in flat), [weights[i][1] * b for i, b in flat]

    def value(self) -> tuple[Fraction, Fraction]:
        """Return the exact objective of the step, and how far off it may be."""
        terms = self._apart(self._objective.term)
        size = sum((abs(exact) for exact, _ in terms), Fraction(0)) / self._number
        bound = sum((b for _, b in terms), Fraction(0)) / self._number
        more = (self._growth + len(terms) * self._unit) * size
        return sum((exact for exact, _ in terms), Fraction(0)) / self._number, bound + more


def _plain(exact: Fraction) -> Fraction:
    """As a person would write it, or as a float."""
    short = exact.limit_denominator(10**6)
    return short if abs(short - exact) <= _CUT * abs(exact) else Fraction(float(exact))


def _by_token(step: Step) -> list[tuple[int, int]]:
    """Of every response token its sample and its mask."""
    return [(i, bit) for i, s in enumerate(step.samples) for bit in s.loss_mask]
