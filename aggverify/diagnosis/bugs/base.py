"""A historic bug, and the trace in the observations by which it is recognised."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from aggverify.diagnosis.factors import Factor
from aggverify.diagnosis.forms import SIZES, ClosedForm
from aggverify.diagnosis.terms import Term


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that was recognised in the observations of one finding."""

    symptom: str
    """Of the finding's code (``codes.Symptom``)."""
    mode: str | None
    engine: str
    form: ClosedForm | None = None
    factor: Factor | None = None
    marks: frozenset[str] = frozenset()
    reading: str | None = None
    """``field=value`` of the policy reading that explains the weights."""
    other_mode: str | None = None
    text: str = ""
    """Message and traceback of a step that was not finished."""


@dataclass(frozen=True, slots=True)
class Count:
    """A pattern for a Term: regular expressions for what and unit; places None match any."""

    what: str
    unit: str = ""
    places: tuple[str, ...] | None = ()
    inside: str = ""
    """A regular expression that one of them must match."""

    def matches(self, term: Term | None) -> bool:
        return (
            term is not None
            and re.fullmatch(self.what, term.what) is not None
            and re.fullmatch(self.unit, term.unit) is not None
            and (self.places is None or self.places == term.places)
            and (not self.inside or any(re.fullmatch(self.inside, p) for p in term.places))
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern for a closed form; fields left at None match anything."""

    inner: Count | None = None
    outer: tuple[Count, ...] | None = None
    upper: Count | None = None
    sizes: tuple[str, ...] | None = None
    """Sizes as ``dp_size`` above and ``/dp_size`` below the line; () for none."""
    constant: bool = False

    def matches(self, form: ClosedForm) -> bool:
        return (
            (self.inner is None or self.inner.matches(form.inner))
            and (self.upper is not None) == (form.upper is not None)
            and (self.upper is None or self.upper.matches(form.upper))
            and (self.outer is None or self._outer(form.outer))
            and (self.sizes is None or sorted(self.sizes) == sorted(_sizes(form)))
            and (self.constant or form.constant == 1)
        )

    def _outer(self, terms: tuple[Term, ...]) -> bool:
        assert self.outer is not None
        return len(terms) == len(self.outer) and all(
            c.matches(t) for c, t in zip(self.outer, terms, strict=True)
        )


def _sizes(form: ClosedForm) -> list[str]:
    return [
        name if exponent > 0 else f"/{name}"
        for name, exponent in zip(SIZES, form.exponents, strict=True)
        if exponent
    ]


@dataclass(frozen=True, slots=True)
class Bug:
    """What is computed, where it was seen, how it was mended; and its trace.

    A trace is recognised when every pattern that is given fits, and at least one is given.
    """

    name: str
    sentence: str
    seen: str
    fix: str
    symptom: str = ""
    modes: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] | None = None
    """Of a factor with a number in front, its sizes with exponents."""
    reading: str | None = None
    other_modes: tuple[str, ...] = ()
    shape: Shape | None = None
    text: str | None = field(default=None)
    """A regular expression in the message or traceback."""
    in_numbers: bool = False
    """Whether the finding's message says in numbers what ``sentence`` says in words."""

    def explains(self, trace: Trace) -> bool:
        """Whether the trace is this bug's."""
        return (
            (not self.symptom or self.symptom == trace.symptom)
            and (not self.modes or trace.mode in self.modes)
            and (not self.engines or trace.engine in self.engines)
            and set(self.marks) <= trace.marks
            and (
                not self.factors or (trace.factor is not None and trace.factor.name in self.factors)
            )
            and (self.sizes is None or _numbered(trace.factor, self.sizes))
            and (self.reading is None or self.reading == trace.reading)
            and (not self.other_modes or trace.other_mode in self.other_modes)
            and (self.shape is None or (trace.form is not None and self.shape.matches(trace.form)))
            and (self.text is None or re.search(self.text, trace.text) is not None)
        )


def _numbered(factor: Factor | None, sizes: tuple[tuple[str, int], ...]) -> bool:
    return (
        factor is not None
        and factor.constant != Fraction(1)
        and sorted(factor.sizes) == sorted(sizes)
    )
