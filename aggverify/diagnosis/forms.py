"""A library of denominators: which closed form over the layout gives the observed weights.

A form is ``sizes / (inner * outer)``: *inner* counts something in the token's own unit, *outer*
counts units, *sizes* is a product of parallel sizes. Mistakes of this field are of that shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from aggverify.case import Case
from aggverify.layouts import token_owner

Array = npt.NDArray[np.float64]
_TOLERANCE = 1e-6
"""Relative; distinct forms differ by a ratio of small integers, roundings by 1e-7 at most."""

_PLACES = ("dp rank", "cp rank", "micro-batch")
_SIZES = ("dp_size", "cp_size", "num_microbatches")


@dataclass(frozen=True, slots=True)
class Observation:
    """Weights read off one execution; ``expected`` is exact, None where there is no oracle."""

    case: Case
    observed: Array
    expected: tuple[Fraction, ...] | None


@dataclass(frozen=True, slots=True)
class Term:
    """A count: what is counted, inside which unit."""

    what: str
    unit: str
    places: tuple[str, ...]

    @property
    def text(self) -> str:
        """For example "unmasked tokens of the prompt group on one dp rank"."""
        where = " and ".join(self.places)
        of = {"": "the step" if not self.places else "", "sample": "the sample"}.get(
            self.unit, f"the {self.unit}"
        )
        parts = [self.what]
        if of:
            parts.append(f"of {of}")
        if where:
            parts.append(f"within one {where}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """``weight = product(size**exponent) / (inner * outer)`` over unmasked tokens."""

    inner: Term | None
    outer: Term | None
    exponents: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """The form in words, layout names as the field has them."""
        below = [t.text for t in (self.inner, self.outer) if t is not None]
        above = []
        for name, exponent in zip(_SIZES, self.exponents, strict=True):
            if exponent > 0:
                above.append(name)
            elif exponent < 0:
                below.append(name)
        top = " x ".join(["l", *above])
        return f"sum of {top} / ({' x '.join(below)})" if below else f"sum of {top}"

    @property
    def cost(self) -> int:
        """Complexity: of several fitting forms the simplest is told."""
        terms = [t for t in (self.inner, self.outer) if t is not None]
        return (
            2 * sum(map(abs, self.exponents))
            + sum(2 + len(t.places) for t in terms)
            + sum(0 if t.what in _PLAIN else 1 for t in terms)
        )


_PLAIN = ("unmasked tokens", "rollouts", "prompt groups")


class _Tokens:
    """Per unmasked token: its sample, rollout, group and owner; counts over any of them."""

    def __init__(self, case: Case) -> None:
        step = case.step
        mask = np.frombuffer(b"".join(s.loss_mask for s in step.samples), dtype=np.uint8)
        lengths = [s.response_length for s in step.samples]
        sample = np.repeat(np.arange(len(lengths)), lengths)
        self.keep = mask.astype(bool)
        owner = np.array(token_owner(step, case.layout), dtype=np.int64).reshape(-1, 3)
        ids = {
            "sample": sample,
            "rollout": np.array([s.rollout for s in step.samples])[sample],
            "prompt group": np.array([s.group for s in step.samples])[sample],
            "dp rank": owner[:, 0],
            "cp rank": owner[:, 1],
            "micro-batch": owner[:, 2],
        }
        self._all = ids
        self._masked = mask
        self._case = case

    def term(self, term: Term) -> Array:
        """The term's count for every unmasked token, float64."""
        keys = [k for k in (term.unit, *term.places) if k]
        unit = self._unit(keys)
        if term.what == "unmasked tokens":
            counts = np.asarray(np.bincount(unit, weights=self._masked), dtype=np.float64)
        elif term.what == "response tokens":
            counts = np.asarray(np.bincount(unit), dtype=np.float64)
        else:
            counts = self._distinct(unit, term.what)
        return np.asarray(counts[unit][self.keep], dtype=np.float64)

    def _unit(self, keys: list[str]) -> npt.NDArray[np.int64]:
        if not keys:
            return np.zeros(len(self.keep), dtype=np.int64)
        columns = np.stack([self._all[k] for k in keys], axis=1)
        return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)

    def _distinct(self, unit: npt.NDArray[np.int64], what: str) -> Array:
        """How many samples, rollouts or groups (all, or with an unmasked token) are in a unit."""
        non_empty = what.startswith("non-empty ")
        key = {"samples": "sample", "rollouts": "rollout", "prompt groups": "prompt group"}[
            what.removeprefix("non-empty ")
        ]
        chosen = self.keep if non_empty else np.ones_like(self.keep)
        pairs = np.unique(np.stack([unit[chosen], self._all[key][chosen]], axis=1), axis=0)
        return np.bincount(pairs[:, 0], minlength=int(unit.max()) + 1).astype(np.float64)


def _places() -> Iterator[tuple[str, ...]]:
    for n in range(len(_PLACES) + 1):
        yield from combinations(_PLACES, n)


def _inner_terms() -> Iterator[Term | None]:
    yield None
    for what in ("unmasked tokens", "response tokens"):
        for unit in ("", "sample", "rollout", "prompt group"):
            for places in _places():
                yield Term(what, unit, places)


def _outer_terms() -> Iterator[Term | None]:
    yield None
    for what in ("rollouts", "samples", "prompt groups"):
        for prefix in ("", "non-empty "):
            for places in _places():
                yield Term(prefix + what, "", places)


def closed_form(observations: Sequence[Observation]) -> ClosedForm | None:
    """The simplest form that equals the observed weights on every observation, or None."""
    usable = [o for o in observations if np.isfinite(o.observed).all() and o.case.step.num_unmasked]
    if not usable:
        return None
    tokens = [_Tokens(o.case) for o in usable]
    observed = [o.observed[t.keep] for o, t in zip(usable, tokens, strict=True)]
    if any((w == 0).any() for w in observed):
        return None
    sizes = [
        (o.case.layout.dp_size, o.case.layout.cp_size, o.case.layout.num_microbatches)
        for o in usable
    ]
    outers = {t: _values(t, tokens) for t in _outer_terms()}
    fitting = [
        form
        for inner in _inner_terms()
        for form in _matches(inner, _values(inner, tokens), outers, observed, sizes)
    ]
    return min(fitting, key=lambda form: form.cost, default=None)


def _values(term: Term | None, tokens: Sequence[_Tokens]) -> list[Array]:
    if term is None:
        return [np.ones(int(t.keep.sum())) for t in tokens]
    return [t.term(term) for t in tokens]


def _matches(
    inner: Term | None,
    inner_values: list[Array],
    outers: dict[Term | None, list[Array]],
    observed: list[Array],
    sizes: Sequence[tuple[int, int, int]],
) -> Iterator[ClosedForm]:
    for outer, outer_values in outers.items():
        quotients = []
        for w, a, b in zip(observed, inner_values, outer_values, strict=True):
            q = w * a * b
            if abs(q.max() - q.min()) > _TOLERANCE * abs(q[0]):
                break
            quotients.append(float(q[0]))
        else:
            for exponents in product((0, 1, -1), repeat=3):
                if _monomial_fits(exponents, sizes, quotients):
                    yield ClosedForm(inner, outer, exponents)


def _monomial_fits(
    exponents: tuple[int, ...],
    sizes: Sequence[tuple[int, int, int]],
    quotients: Sequence[float],
) -> bool:
    for size, quotient in zip(sizes, quotients, strict=True):
        value = float(np.prod([float(n) ** e for n, e in zip(size, exponents, strict=True)]))
        if abs(quotient - value) > _TOLERANCE * value:
            return False
    return all(e == 0 or any(size[i] > 1 for size in sizes) for i, e in enumerate(exponents))
