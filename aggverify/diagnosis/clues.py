"""What was recognised of a finding, and the clues by which a bug is recognised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

from aggverify.codec import Part
from aggverify.diagnosis.factors import Factor
from aggverify.diagnosis.forms import SIZES, ClosedForm
from aggverify.diagnosis.mask_leak import MaskLeak, Poison
from aggverify.diagnosis.notfinite import NotFinite
from aggverify.diagnosis.terms import Term
from aggverify.engines import EngineSpec, Sizes
from aggverify.world import Raised


@dataclass(frozen=True, slots=True)
class Clues:
    """Everything that was recognised of one finding.

    ``signs``: by name, the symptom of its code, what its check has seen, and what its weights, its
    reported values or its fault show. ``factor``: by which all weights are off. ``form``: the
    closed form that they have. ``error``: what the rank at fault raised. ``not_finite``: where
    something is not, although every loss is. ``behind``: what values behind the mask do.
    """

    mode: str | None
    engine: EngineSpec
    signs: frozenset[str] = frozenset()
    factor: Factor | None = None
    form: ClosedForm | None = None
    error: Raised | None = None
    not_finite: NotFinite | None = None
    behind: MaskLeak | None = None


class Clue(Protocol):
    """One thing a bug is recognised by."""

    def fits(self, seen: Clues) -> bool:
        """Whether it is among what was recognised."""
        ...


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign whose name matches a regular expression."""

    name: str

    def fits(self, seen: Clues) -> bool:
        return any(re.fullmatch(self.name, sign) for sign in seen.signs)


class Claimed(Part, frozen=True):
    """What is claimed: one of these modes, or any where none is given.

    ``counts``: under an engine that divides by the counts it is handed; ``divides_by_rollouts``: by
    the step's rollouts.
    """

    modes: tuple[str, ...] = ()
    counts: bool = False
    divides_by_rollouts: bool = False

    def fits(self, seen: Clues) -> bool:
        return (
            (not self.modes or seen.mode in self.modes)
            and (not self.counts or seen.engine.takes_counts)
            and (not self.divides_by_rollouts or _divides_by_rollouts(seen.engine))
        )


def _divides_by_rollouts(engine: EngineSpec) -> bool:
    """Whether twice as many rollouts halve the update of the same losses."""
    one, two = (engine.value([Fraction(1)], [1], Sizes(1, 1, 1, rollouts)) for rollouts in (1, 2))
    return one == 2 * two


class Off(Part, frozen=True):
    """All weights off by a factor of one of these names, or by a number times these sizes."""

    names: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] | None = None

    def fits(self, seen: Clues) -> bool:
        factor = seen.factor
        if factor is None:
            return False
        if self.sizes is None:
            return factor.name in self.names
        return factor.constant != 1 and sorted(factor.sizes) == sorted(self.sizes)


_LONGEST_WINDOW = 64
"""Micro-batches that a trainer accumulates over at most."""


class WholePart(Part, frozen=True):
    """All weights one half, one third, ... of what they should be, by a number alone."""

    def fits(self, seen: Clues) -> bool:
        factor = seen.factor
        if factor is None or factor.sizes or factor.constant.numerator != 1:
            return False
        return 1 < factor.constant.denominator <= _LONGEST_WINDOW


class Error(Part, frozen=True):
    """An exception with this in its message, or in the candidate's line where it came from.

    Both are regular expressions, the first for messages of torch or the interpreter, never ours.
    """

    says: str = ""
    line: str = ""

    def fits(self, seen: Clues) -> bool:
        error = seen.error
        return (
            error is not None
            and re.search(self.says, error.message) is not None
            and re.search(self.line, error.candidate_line) is not None
        )


class Broken(Part, frozen=True):
    """Something is not finite although every per-token loss is.

    ``forward``: a rank's own loss, otherwise only gradients. ``masked``: at the masked tokens,
    otherwise where something is empty.
    """

    forward: bool
    masked: bool = False

    def fits(self, seen: Clues) -> bool:
        found = seen.not_finite
        return (
            found is not None
            and found.forward == self.forward
            and found.masked == self.masked
            and (found.masked or bool(found.empty))
        )


class Leaks(Part, frozen=True):
    """Values behind the mask that reach the loss: all those in ``by``, none of those in ``not_by``.

    Without ``by`` values reach only the gradient. ``weighed``: whether masked tokens have weights;
    None: either.
    """

    by: tuple[Poison, ...] = ()
    not_by: tuple[Poison, ...] = ()
    cancels: bool = False
    weighed: bool | None = None

    def fits(self, seen: Clues) -> bool:
        found = seen.behind
        if found is None:
            return False
        if not self.by:
            return not found.value and bool(found.gradient)
        return (
            found.value.issuperset(self.by)
            and found.value.isdisjoint(self.not_by)
            and found.cancels == self.cancels
            and self.weighed in (None, found.weighed)
        )


class Count(Part, frozen=True):
    """A pattern for a Term: regular expressions for what and unit; places may be "any"."""

    what: str
    unit: str = ""
    places: tuple[str, ...] | Literal["any"] = ()
    inside: str = ""
    """A regular expression that one of them must match."""

    def matches(self, term: Term | None) -> bool:
        """Whether a term is such a count."""
        return (
            term is not None
            and re.fullmatch(self.what, term.what) is not None
            and re.fullmatch(self.unit, term.unit) is not None
            and self.places in ("any", term.places)
            and (not self.inside or any(re.fullmatch(self.inside, p) for p in term.places))
        )


PARTS = ("inner", "outer", "sizes")
"""Of a form: what a token's own unit is divided by, what is averaged over, parallel sizes."""


class FormShape(Part, frozen=True):
    """A closed form of this shape; a part left at None matches any, but ``upper`` only none."""

    inner: Count | None = None
    outer: tuple[Count, ...] | None = None
    upper: Count | None = None
    sizes: tuple[str, ...] | None = None
    """Sizes as ``dp_size`` above and ``/dp_size`` below the line; () for none."""

    def fits(self, seen: Clues) -> bool:
        form = seen.form
        return (
            form is not None
            and form.constant == 1
            and (self.inner is None or self.inner.matches(form.inner))
            and (self.upper is not None) == (form.upper is not None)
            and (self.upper is None or self.upper.matches(form.upper))
            and (self.outer is None or _each(self.outer, form.outer))
            and (self.sizes is None or sorted(self.sizes) == sorted(_sizes(form)))
        )

    @property
    def open(self) -> frozenset[str]:
        """Parts of a form that it leaves open."""
        return frozenset(name for name in PARTS if getattr(self, name) is None)


def _each(counts: tuple[Count, ...], terms: tuple[Term, ...]) -> bool:
    pairs = zip(counts, terms, strict=False)
    return len(terms) == len(counts) and all(count.matches(term) for count, term in pairs)


def _sizes(form: ClosedForm) -> list[str]:
    pairs = zip(SIZES, form.exponents, strict=True)
    return [name if exponent > 0 else f"/{name}" for name, exponent in pairs if exponent]
