"""From observed weights to the mistake: the factor in the layout's own names, the closed form, the
historic bug."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from aggverify.checks import Finding
from aggverify.codes import Diagnosed, Symptom
from aggverify.diagnosis.bugs import Bug, Trace, known_bug, known_bugs
from aggverify.diagnosis.distorted import distorted_count
from aggverify.diagnosis.factors import Factor, common_factor
from aggverify.diagnosis.forms import ClosedForm, closed_forms, telling
from aggverify.diagnosis.mark import Mark
from aggverify.diagnosis.marks import find_mark
from aggverify.diagnosis.observation import Observation, close
from aggverify.diagnosis.readings import other_mode, other_reading
from aggverify.diagnosis.values import off_value, undivided_sums
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case
from aggverify.world import evidence

_FORMS = 12
"""So many of the simplest fitting forms are told apart by further cases."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the candidate computes instead, as far as it could be told.

    ``root`` is equal for findings with the same diagnosis, which are shown as one.
    """

    sentence: str
    factor: str | None = None
    bug: Bug | None = None
    root: str | None = None
    also: tuple[Bug, ...] = ()
    """Further bugs, where one alone does not make these weights."""


def diagnose(
    subject: Subject, finding: Finding, tiers: Sequence[Sequence[Observation]]
) -> Diagnosis | None:
    """The most specific explanation that fits every observation of the widest tier that has one.

    ``tiers``: sets of observations, the first over all layouts, later ones over fewer.
    """
    if finding.traits.diagnosed is Diagnosed.VALUE:
        return _value_diagnosis(subject, finding, tiers)
    for tier in tiers:
        found = _explained(subject, finding, tier)
        if found is not None:
            return found
    return None


def telling_case(observations: Sequence[Observation], candidates: Sequence[Case]) -> Case | None:
    """A candidate on which the forms that still fit foretell different weights, if there is one."""
    forms = closed_forms(observations)[:_FORMS]
    seen = {o.case for o in observations}
    return telling(forms, [case for case in candidates if case not in seen])


def _explained(
    subject: Subject, finding: Finding, observations: Sequence[Observation]
) -> Diagnosis | None:
    """One trace out of everything recognised, and its bug."""
    if not observations:
        return None
    trace = _trace(subject, finding)
    mark = find_mark(observations)
    if mark is not None:
        return _diagnosis(replace(trace, marks=frozenset([mark.name])), mark.sentence)
    if not all(np.isfinite(o.observed).all() for o in observations):
        return None
    if all(o.expected is not None and close(o.observed, o.exact) for o in observations):
        return None  # nothing to explain
    reading = other_reading(subject, observations)
    if reading is not None:
        name, value = reading
        declared = getattr(subject.policy, name)
        sentence = f"the mode under another reading: {name} = {value!r} (declared: {declared!r})"
        return _diagnosis(replace(trace, reading=f"{name}={value}"), sentence)
    factor = common_factor(subject, observations)
    forms = closed_forms(observations)
    trace = replace(trace, form=forms[0] if forms else None, factor=factor)
    mode = other_mode(subject, observations)
    if mode is not None:
        return _diagnosis(replace(trace, other_mode=mode), f"the weights of {mode}")
    return _formula_diagnosis(subject, trace, observations, forms)


def _formula_diagnosis(
    subject: Subject,
    trace: Trace,
    observations: Sequence[Observation],
    forms: Sequence[ClosedForm],
) -> Diagnosis | None:
    marks = set()
    if trace.factor is not None and undivided_sums(observations):
        marks.add("undivided-sum")
    if trace.factor is not None and not trace.factor.sizes:
        marks.add("constant-factor")
    if trace.form is not None and trace.form.is_a_number:
        marks.add("divided-by-a-number")
    trace = replace(trace, marks=frozenset(marks))
    if trace.factor is None and trace.form is None:
        mark = distorted_count(observations)
        if mark is not None:
            return _diagnosis(replace(trace, marks=frozenset([mark.name])), mark.sentence)
        return _relative(subject, trace, observations)
    return _diagnosis(trace, _sentence(trace, forms))


def _relative(
    subject: Subject, trace: Trace, observations: Sequence[Observation]
) -> Diagnosis | None:
    """A factor over one rank's own weights, where the formula is wrong or unknown already."""
    if any(o.trivial is None or not np.isfinite(o.trivial).all() for o in observations):
        return None
    relative = [o.relative_to_trivial for o in observations]
    factor = common_factor(subject, relative)
    if factor is None:
        return None
    return _diagnosis(replace(trace, factor=factor), factor.sentence)


def _sentence(trace: Trace, forms: Sequence[ClosedForm]) -> str:
    parts = [trace.factor.sentence] if trace.factor is not None else []
    parts += [forms[0].sentence] if forms else []
    return ": ".join(parts)


def _diagnosis(trace: Trace, sentence: str) -> Diagnosis:
    factor = trace.factor.name if trace.factor is not None else None
    root = trace.form.sentence if trace.form is not None else sentence
    bug, *also = known_bugs(trace) or (None,)
    return Diagnosis(sentence, factor, bug, root, tuple(b for b in also if b is not None))


def _value_diagnosis(
    subject: Subject, finding: Finding, tiers: Sequence[Sequence[Observation]]
) -> Diagnosis | None:
    trace = _trace(subject, finding)
    # A constant is added once per rank and micro-batch: first look where there is only one.
    alone = [o for o in tiers[0] if o.case.layout.is_trivial]
    for tier in (alone, *reversed(tiers)):
        found = off_value(subject, tier)
        if found is not None:
            mark, factor = found
            trace = replace(trace, marks=frozenset([mark.name]), factor=factor)
            return _diagnosis(trace, mark.sentence)
    return None


def diagnose_behind_the_mask(
    subject: Subject, finding: Finding, overflow_is_finite: bool
) -> Diagnosis | None:
    """Values behind the mask reach the result: through a product with 0, or a sum times 0?

    Told apart by two masked losses whose sum overflows: a product with the mask stays finite.
    """
    mark = "no-overflow" if overflow_is_finite else "overflowing-sum"
    bug = known_bug(_trace(subject, finding, marks=frozenset([mark])))
    return Diagnosis(bug.sentence, None, bug, bug.sentence) if bug else None


def diagnose_failure(subject: Subject, finding: Finding, marks: frozenset[str]) -> Diagnosis | None:
    """A step that is not finished, recognised by its message, its stacks and where it happens."""
    told = evidence(finding.fault) if finding.fault is not None else ""
    bug = known_bug(_trace(subject, finding, marks=marks, text=f"{finding.message}\n{told}"))
    return Diagnosis(bug.sentence, None, bug, bug.sentence) if bug else None


def diagnose_symptom(subject: Subject, finding: Finding) -> Diagnosis | None:
    """A finding that its own code and message explain."""
    bug = known_bug(_trace(subject, finding, text=finding.message))
    if bug is None:
        return None
    # The formula check may have met the same constant, and has the same words for it.
    root = finding.message if bug.in_numbers else bug.sentence
    return Diagnosis(root, None, bug, root)


def not_linear(subject: Subject) -> Diagnosis | None:
    """Weights that change with the loss values."""
    bug = known_bug(Trace(Symptom.NOT_LINEAR, subject.mode, subject.engine.name))
    return Diagnosis(bug.sentence, None, bug, bug.sentence) if bug else None


def _trace(
    subject: Subject, finding: Finding, *, marks: frozenset[str] = frozenset(), text: str = ""
) -> Trace:
    """What is known of a finding before anything is observed."""
    symptom = finding.traits.symptom
    return Trace(symptom, subject.mode, subject.engine.name, marks=marks, text=text)


def ratio(expected: Fraction, observed: float) -> Fraction | None:
    """The simplest fraction that the observed weight over the expected one can be."""
    if not expected:
        return None
    exact = Fraction(observed) / expected
    simple = exact.limit_denominator(10**6)
    return simple if abs(simple - exact) <= Fraction(1, 10**12) * abs(exact) else exact


__all__ = [
    "Bug",
    "Diagnosis",
    "Factor",
    "Mark",
    "Observation",
    "diagnose",
    "diagnose_behind_the_mask",
    "diagnose_failure",
    "diagnose_symptom",
    "not_linear",
    "ratio",
    "telling_case",
]
