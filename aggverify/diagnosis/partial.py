"""Forms that only some samples have: the others' weights are 0, by their place or group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.forms import ClosedForm, closed_forms
from aggverify.diagnosis.observation import Array, WeightObservation
from aggverify.diagnosis.terms import Tokens
from aggverify.oracles import Sample
from aggverify.steps.case import Case

Dropped = Callable[[Case], frozenset[int]]
"""Samples of a case that are left out, by index."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Which samples have weight 0: a sign that the bug table knows, and a sentence."""

    sign: str
    sentence: str
    samples: Dropped


@dataclass(frozen=True, slots=True)
class PartialForm:
    """A closed form, and which samples are left out of it."""

    left_out: LeftOut
    form: ClosedForm

    @property
    def sentence(self) -> str:
        return f"{self.left_out.sentence}; for all others: {self.form.sentence}"

    @property
    def cost(self) -> int:
        return self.form.cost + 10

    def predict(self, cases: Sequence[Case]) -> Array:
        """Weights of the unmasked tokens of some cases, one after the other."""
        return np.where(_kept(cases, self.left_out), self.form.predict(cases), 0.0)


def partial_form(observations: Sequence[WeightObservation]) -> PartialForm | None:
    """Return the form of what is left where one rule leaves some samples out in all of these."""
    rule = left_out(observations)
    if rule is None:
        return None
    forms = [PartialForm(rule, form) for form in closed_forms(observations, partial=True)]
    return forms[0] if forms else None


def left_out(observations: Sequence[WeightObservation]) -> LeftOut | None:
    """Return the one rule by which samples have weight 0 in all of these."""
    usable = [o for o in observations if o.case.step.num_unmasked]
    if not any((o.observed[o.mask] == 0).any() for o in usable):
        return None
    for rule in _RULES:
        if all((_kept([o.case], rule) == (o.observed[o.mask] != 0)).all() for o in usable):
            return rule
    return None


def _kept(cases: Sequence[Case], rule: LeftOut) -> npt.NDArray[np.bool_]:
    tokens = Tokens(cases)
    gone = [i in rule.samples(case) for case in cases for i in range(len(case.step.samples))]
    kept: npt.NDArray[np.bool_] = ~np.array(gone, dtype=bool)[tokens.sample[tokens.keep]]
    return kept


def _by_place(case: Case) -> Iterator[tuple[int, tuple[int, ...]]]:
    for _, _, members in case.layout.cells():
        for place in range(len(members)):
            yield place, members


def _remainder(n: int) -> Dropped:
    def gone(case: Case) -> frozenset[int]:
        pairs = _by_place(case)
        return frozenset(m[place] for place, m in pairs if place >= len(m) // n * n)

    return gone


def _beyond(key: Callable[[Sample], int]) -> Dropped:
    def gone(case: Case) -> frozenset[int]:
        samples = case.step.samples
        return frozenset(
            m[place] for place, m in _by_place(case) if place >= len({key(samples[i]) for i in m})
        )

    return gone


def _alone(case: Case) -> frozenset[int]:
    samples = case.step.samples
    members = Counter(s.group for s in samples)
    return frozenset(i for i, s in enumerate(samples) if members[s.group] == 1)


def _overwritten(key: Callable[[Sample], int]) -> Dropped:
    """Return the samples that another one with the same id follows in their micro-batch."""

    def gone(case: Case) -> frozenset[int]:
        found: set[int] = set()
        for _, _, members in case.layout.cells():
            ids = [key(case.step.samples[i]) for i in members]
            found.update(i for n, i in enumerate(members) if ids[n] in ids[n + 1 :])
        return frozenset(found)

    return gone


_RULES: tuple[LeftOut, ...] = (
    LeftOut(
        "overwritten",
        "of a rollout's samples in a micro-batch all but the last have weight 0",
        _overwritten(lambda s: s.rollout),
    ),
    LeftOut(
        "overwritten",
        "of a prompt group's samples in a micro-batch all but the last have weight 0",
        _overwritten(lambda s: s.group),
    ),
    LeftOut(
        "list-runs-out",
        "samples of a micro-batch beyond the number of its rollouts have weight 0",
        _beyond(lambda s: s.rollout),
    ),
    LeftOut(
        "list-runs-out",
        "samples of a micro-batch beyond the number of its prompt groups have weight 0",
        _beyond(lambda s: s.group),
    ),
    LeftOut(
        "rows-not-covered", "samples that are alone in their prompt group have weight 0", _alone
    ),
    *(
        LeftOut(
            "remainder-dropped",
            f"what is left of a micro-batch's samples after whole groups of {n} has weight 0",
            _remainder(n),
        )
        for n in (2, 3, 4)
    ),
)
