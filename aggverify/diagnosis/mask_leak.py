"""What values behind the mask do, one kind of them at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aggverify.diagnosis.observation import WeightObservation
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step


class Poison(StrEnum):
    """What every masked loss is made."""

    NAN = "NaN"
    INFINITY = "infinity"
    FINITE = "a huge finite value"
    OVERFLOW = "two values whose sum overflows"
    LARGEST = "one of them, which is finite until something is made of it"


_HUGE = math.ldexp(1.5, 1023)
_OTHER_STEPS = {
    Poison.OVERFLOW: Case(parse_step("1/100"), Layout.trivial(1), (1.0, _HUGE, _HUGE)),
    Poison.LARGEST: Case(parse_step("1/10"), Layout.trivial(1), (1.0, _HUGE)),
}
"""Steps of their own for poisons that work only with exactly so many masked tokens."""


@dataclass(frozen=True, slots=True)
class MaskLeak:
    """Which of them change the reported loss, and which the gradient.

    ``cancels``: infinity gives a NaN although the finite value has changed something: it is added
    and subtracted again. ``weighed``: masked tokens have a weight of their own, whatever their
    values.
    """

    value: frozenset[Poison]
    gradient: frozenset[Poison]
    cancels: bool = False
    weighed: bool = False


def poisoned(case: Case, poison: Poison) -> Case:
    """Return the case with this poison behind its mask; another step where their number matters."""
    if poison in _OTHER_STEPS:
        return _OTHER_STEPS[poison]
    value = {Poison.NAN: math.nan, Poison.INFINITY: math.inf, Poison.FINITE: 2.0**100}[poison]
    losses = list(case.losses)
    for token in case.masked_tokens():
        losses[token] = value
    return case.with_losses(tuple(losses))


Run = tuple[WeightObservation | None, Mapping[Poison, WeightObservation | None]]
"""A clean run, and the same with each kind behind the mask; None for one that did not finish."""


def mask_leak(runs: Sequence[Run]) -> MaskLeak:
    """Return what the poisons do to values and weights in any of these runs."""
    seen = [(clean, p, o) for clean, dirty in runs if clean for p, o in dirty.items() if o]
    value = {p for clean, p, o in seen if o.value is None or not _equal(clean, p, o)}
    gradient = {
        p
        for clean, p, o in seen
        if p not in _OTHER_STEPS and bool((o.observed != clean.observed).any())
    }
    losses = [
        x for _, p, o in seen if p is Poison.INFINITY for rank in o.local_losses for x in rank
    ]
    nan = any(map(math.isnan, losses))
    weighed = any(bool((clean.observed[~clean.mask] != 0).any()) for clean, _, _ in seen)
    return MaskLeak(frozenset(value), frozenset(gradient), Poison.FINITE in value and nan, weighed)


def _equal(clean: WeightObservation, poison: Poison, dirty: WeightObservation) -> bool:
    """Whether the value is the clean run's; on another step, where it differs anyway, always."""
    return poison in _OTHER_STEPS or dirty.value == clean.value
