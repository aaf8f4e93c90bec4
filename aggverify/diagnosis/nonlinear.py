"""Objectives that are not linear: which count or which values are local, and not the step's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.forms import ClosedForm, exponents, parallel_sizes
from aggverify.diagnosis.observation import TOLERANCE, Array, WeightObservation, close
from aggverify.diagnosis.terms import Term, Tokens, inner_terms, outer_terms
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

COUNT = "count of what is at hand"
OF_THE_ROWS = "statistic over the rows at hand"
OF_THE_SHARD = "statistic per shard"
OF_THE_MASKED = "statistic with masked values in it"
Bits = npt.NDArray[np.bool_]


def at_rest(case: Case) -> Case:
    """Return the case where every ratio is 1: there an objective has weights in closed form."""
    return case.with_losses((0.0,) * len(case.losses))


def count_at_hand(observations: Sequence[WeightObservation]) -> ClosedForm | None:
    """Return the count of one rank or micro-batch that stands for the step's own, in all of these.

    It is what weights are off by from those on one rank. The cases must be ``at_rest``.
    """
    ratios, cases = [], []
    for o in observations:
        if o.trivial is None or not o.mask.any():
            continue
        alone, spread = o.trivial[o.mask], o.observed[o.mask]
        if not np.isfinite(alone).all() or (alone == 0).any() or (spread / alone <= 0).any():
            return None
        ratios.append(spread / alone)
        cases.append(o.case)
    if not cases or all(close(r, np.ones_like(r)) for r in ratios):
        return None
    return next(_forms(Tokens(cases), np.log(np.concatenate(ratios)), cases), None)


def _forms(tokens: Tokens, ratio: Array, cases: Sequence[Case]) -> Iterator[ClosedForm]:
    which = tokens.case[tokens.keep]
    logs = np.log([parallel_sizes(case) for case in cases])
    inner = dict.fromkeys(term for term in inner_terms() if term.places)
    outer = dict.fromkeys(term for terms in outer_terms() for term in terms if term.places)
    found = []
    for term in (*inner, *outer):
        here, whole = (tokens.values(t) for t in (term, Term(term.what, term.unit)))
        left = ratio - np.log(whole / here)
        for powers in exponents():
            if (np.abs(left - (logs @ np.array(powers))[which]) <= TOLERANCE).all():
                own = (term, ()) if term in inner else (None, (term,))
                found.append(ClosedForm(own[0], own[1], powers))
    yield from sorted(found, key=lambda form: form.cost)


def count_of_a_part(observations: Sequence[WeightObservation]) -> ClosedForm | None:
    """Return the count at hand that divides a part of the gradient, all others being right.

    On one step two layouts show which part that is: how far each is off, over by how much its count
    is, is the same.
    """
    steps: dict[tuple[Step, tuple[float, ...]], list[WeightObservation]] = {}
    for o in observations:
        if o.trivial is not None and not o.case.layout.is_trivial and o.mask.any():
            steps.setdefault((o.case.step, o.case.losses), []).append(o)
    sets = [own for own in steps.values() if len(own) > 1]
    cases = [o.case for own in sets for o in own]
    if not cases or not all(np.isfinite(o.observed).all() for own in sets for o in own):
        return None
    tokens = Tokens(cases)
    ends = np.cumsum([int(o.mask.sum()) for own in sets for o in own])[:-1]
    logs = np.log([parallel_sizes(case) for case in cases])
    which = tokens.case[tokens.keep]
    found = []
    for term in dict.fromkeys(term for term in inner_terms() if term.places):
        here, whole = (tokens.values(t) for t in (term, Term(term.what, term.unit)))
        for powers in exponents():
            times = whole / here * np.exp((logs @ np.array(powers))[which])
            if _is_of_a_part(sets, np.split(times, ends)):
                found.append(ClosedForm(term, (), powers))
    return min(found, key=lambda form: form.cost, default=None)


def _is_of_a_part(sets: Sequence[Sequence[WeightObservation]], times: Sequence[Array]) -> bool:
    """Whether in each set one part of the gradient explains the errors of all its layouts.

    ``times``: by what that part is multiplied in each observation, set after set.
    """
    remaining, seen = iter(times), False
    for own in sets:
        by = np.array([next(remaining) - 1 for _ in own])
        off = np.array([o.observed[o.mask] - cast("Array", o.trivial)[o.mask] for o in own])
        size = np.array([np.abs(cast("Array", o.trivial)[o.mask]).max() for o in own])[:, None]
        off = np.where(np.abs(off) <= _RELATIVE * size, 0.0, off)
        by = np.where(np.abs(by) <= TOLERANCE, 0.0, by)
        best = np.abs(by).argmax(axis=0)
        at = np.arange(by.shape[1])
        part = np.divide(
            off[best, at], by[best, at], out=np.zeros(len(at)), where=by[best, at] != 0
        )
        near = TOLERANCE * np.abs(off).max(axis=0) + _RELATIVE * size
        if (np.abs(off - by * part) > near).any():
            return False
        several = (np.ptp(np.round(by, 9), axis=0) != 0) & (np.abs(part) > 0)
        seen |= bool(several.any())
    return seen


_RELATIVE = 1e-12
"""Far above the roundings of float64, to the largest weight."""


@dataclass(frozen=True, slots=True)
class PerturbedCase:
    """A case with other values outside one place, of other samples or of the same ones."""

    sign: str
    place: Bits
    """Its unmasked tokens."""
    case: Case


def probes(case: Case) -> Iterator[PerturbedCase]:
    """For each place of a case that is spread out."""
    owner = np.array(token_owner(case.step, case.layout)).reshape(-1, 3)
    mask = np.frombuffer(b"".join(s.loss_mask for s in case.step.samples), dtype=np.uint8)
    lengths = [s.response_length for s in case.step.samples]
    sample = np.repeat(np.arange(len(lengths)), lengths)
    if case.layout.cp_kind == "gathered":
        owner[:, 1] = 0
    for at in np.unique(owner, axis=0):
        inside = (owner == at).all(axis=1)
        same = np.isin(sample, sample[inside])
        for sign, outside in ((OF_THE_ROWS, ~inside & ~same), (OF_THE_SHARD, ~inside & same)):
            moved = outside & mask.astype(bool)
            if moved.any() and (inside & (mask == 1)).any():
                new = [x + 0.25 if m else x for x, m in zip(case.losses, moved, strict=True)]
                yield PerturbedCase(sign, inside & (mask == 1), case.with_losses(tuple(new)))


def is_at_hand(probe: PerturbedCase, before: WeightObservation, after: WeightObservation) -> bool:
    """Whether the values elsewhere have a part in its weights on one rank, and none as laid out.

    A token that is let in or left out by them has been compared, which is no statistic.
    """
    if before.trivial is None or after.trivial is None:
        return False
    one, two = before.trivial[probe.place], after.trivial[probe.place]
    weighs = (one != 0) & (two != 0)
    spread = close(before.observed[probe.place], after.observed[probe.place])
    return spread and not close(one[weighs], two[weighs])
