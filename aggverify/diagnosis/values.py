"""Reported losses off by a constant or a factor from the scalar whose gradient is taken."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from aggverify.diagnosis.factors import Factor, named_ratio
from aggverify.diagnosis.observation import TOLERANCE, ObservedSign, WeightObservation
from aggverify.execution.subject import Subject


def off_value(
    subject: Subject, observations: Sequence[WeightObservation]
) -> tuple[ObservedSign, Factor | None] | None:
    """How the reported value differs from ``sum(w*l)`` in every observation, or None."""
    pairs = [
        (o, o.value, scalar)
        for o in observations
        if o.value is not None and (scalar := _scalar(o)) is not None
    ]
    if not pairs:
        return None
    offsets = [float(v - s) for _, v, s in pairs]
    if max(offsets) - min(offsets) <= TOLERANCE * abs(offsets[0]):
        return ObservedSign("affine", f"{offsets[0]:.3g} is added to the loss: f(0) is not 0"), None
    usable = [(o, float(v / s)) for o, v, s in pairs if s]
    factor = named_ratio(subject, [o for o, _ in usable], [r for _, r in usable])
    if factor is None:
        return None
    return ObservedSign(
        "value-scaled", f"the reported loss is {factor.name} times the objective"
    ), factor


def _scalar(o: WeightObservation) -> Fraction | None:
    if o.expected is None:
        return None
    terms = (w * Fraction(loss) for w, loss in zip(o.expected, o.case.losses, strict=True) if w)
    return sum(terms, Fraction(0))


def undivided_sums(observations: Sequence[WeightObservation]) -> bool:
    """Whether the local losses add up to the plain sum of all unmasked losses in every one.

    Then the reducer divided and multiplied by nothing, and a factor came with its counts.
    """
    usable = [o for o in observations if _plain_sum(o) and o.case.layout.cp_kind != "gathered"]
    return bool(usable) and all(
        abs(sum(map(sum, o.local_losses)) - _plain_sum(o)) <= TOLERANCE * abs(_plain_sum(o))
        for o in usable
    )


def _plain_sum(o: WeightObservation) -> float:
    return sum(x for x, kept in zip(o.case.losses, o.mask, strict=True) if kept)
