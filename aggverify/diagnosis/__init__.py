"""From observed weights to the mistake: the factor in the layout's own names, the closed form, the
historic bug."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from aggverify.diagnosis.bugs import Bug, known_bug
from aggverify.diagnosis.factors import Factor, common_factor
from aggverify.diagnosis.forms import ClosedForm, Observation, closed_form
from aggverify.diagnosis.readings import other_reading
from aggverify.subject import Subject


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the candidate computes instead, as far as it could be told."""

    sentence: str
    factor: str | None = None
    bug: Bug | None = None


def diagnose(subject: Subject, code: str, observations: Sequence[Observation]) -> Diagnosis | None:
    """The most specific explanation that fits every observation, or None.

    Another reading of the declared policy comes first, then a factor common to all tokens, then a
    closed form out of the library of denominators.
    """
    reading = other_reading(subject, observations)
    if reading is not None:
        return Diagnosis(f"the mode under another reading: {reading}")
    factor = common_factor(subject, observations)
    form = closed_form(observations)
    if factor is not None:
        return Diagnosis(_factor_sentence(factor, form), factor.name, known_bug(code, form, factor))
    bug = known_bug(code, form, None)
    if form is not None:
        return Diagnosis(form.sentence, None, bug)
    return Diagnosis(bug.sentence, None, bug) if bug else None


def _factor_sentence(factor: Factor, form: ClosedForm | None) -> str:
    if form is None:
        return factor.sentence
    return f"{factor.sentence}: {form.sentence}"


def ratio(expected: Fraction, observed: float) -> Fraction | None:
    """The simplest fraction that the observed weight over the expected one can be."""
    if not expected:
        return None
    exact = Fraction(observed) / expected
    simple = exact.limit_denominator(10**6)
    return simple if abs(simple - exact) <= Fraction(1, 10**12) * abs(exact) else exact


__all__ = ["Bug", "Diagnosis", "Observation", "diagnose", "ratio"]
