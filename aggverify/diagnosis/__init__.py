"""From observed weights to the mistake: a factor named in sizes, a closed form, a known bug."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from aggverify.checks import Finding
from aggverify.codes import Diagnosed
from aggverify.diagnosis.bugs import KnownBug, bugs_of_parts, known_bug
from aggverify.diagnosis.clues import PARTS, Clues
from aggverify.diagnosis.distorted import distorted_count
from aggverify.diagnosis.explanation import Diagnosis, Predicts
from aggverify.diagnosis.factors import Factor, common_factor
from aggverify.diagnosis.factors import gives as factor_gives
from aggverify.diagnosis.forms import ClosedForm, closed_forms, distinguishing_case_of
from aggverify.diagnosis.mask_leak import MaskLeak, Poison, mask_leak, poisoned
from aggverify.diagnosis.merge import gives, merge_diagnoses
from aggverify.diagnosis.nonlinear import COUNT
from aggverify.diagnosis.notfinite import in_words, not_finite
from aggverify.diagnosis.observation import ObservedSign, WeightObservation, close
from aggverify.diagnosis.partial import PartialForm, partial_form
from aggverify.diagnosis.readings import exchanged, other_mode, other_reading
from aggverify.diagnosis.shown import shown_by_weights
from aggverify.diagnosis.stated import stated
from aggverify.diagnosis.values import off_value, undivided_sums
from aggverify.diagnosis.wording import described, needs_no_count, requirement, whole
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case

_FORMS = 12
"""So many of the simplest fitting forms are distinguished by further cases."""


def diagnose(
    subject: Subject, finding: Finding, tiers: Sequence[Sequence[WeightObservation]]
) -> Diagnosis | None:
    """Return the most specific explanation of every observation of the widest tier that has one.

    ``tiers``: sets of observations, the first over all layouts, later ones over fewer.
    """
    if finding.traits.diagnosed is Diagnosed.VALUE:
        return _value(subject, finding, tiers)
    right = [o for o in tiers[0] if o.case.layout.is_trivial and is_right(o)]
    also_observed = right if finding.case.layout.is_trivial else ()
    for tier in tiers:
        found = _explained(subject, finding, tier, also_observed)
        if found is not None and not _misses(found, finding, tier):
            return found
    return None


def _misses(found: Diagnosis, finding: Finding, observations: Sequence[WeightObservation]) -> bool:
    """Whether a formula that fits everything roughly does not give this very finding's weights."""
    if found.form is None:
        return False
    return _its_own(finding, observations) is not None and not gives(found.form, finding)


def _its_own(
    finding: Finding, observations: Sequence[WeightObservation]
) -> WeightObservation | None:
    """Return the observation of the finding's own weights."""
    if finding.observed is None:
        return None
    weights, place = np.array(finding.observed), (finding.case.step, finding.case.layout)
    there = [o for o in observations if (o.case.step, o.case.layout) == place]
    return next((o for o in there if close(o.observed, weights)), None)


def _factor(
    subject: Subject, finding: Finding, observations: Sequence[WeightObservation]
) -> Factor | None:
    """Return the factor common to all, if it gives this finding's weights as they are known."""
    factor = common_factor(subject, observations)
    own = _its_own(finding, observations) if factor is not None else None
    expected = own.expected if own is not None else None
    if factor is None or expected is None or factor_gives(factor, subject, finding, expected):
        return factor
    return None


def distinguishing_case(
    observations: Sequence[WeightObservation], candidates: Sequence[Case]
) -> Case | None:
    """Return a candidate on which the forms that still fit foretell different weights, if any."""
    forms = closed_forms(observations)[:_FORMS]
    seen = {o.case for o in observations}
    return distinguishing_case_of(forms, [case for case in candidates if case not in seen])


def recognised(subject: Subject, finding: Finding, *signs: str) -> Diagnosis | None:
    """Diagnose a finding without observations: by its code, check, fault, and these signs."""
    bug = known_bug(_clues(subject, finding, *signs))
    if bug is None:
        return None
    # The formula check may have met the same constant, and has the same words for it.
    root = finding.message if bug.in_numbers else bug.sentence
    # Each auxiliary term has its own mistake.
    return Diagnosis(root, None, bug, root if finding.term is None else f"{root} ({finding.term})")


def deviation(subject: Subject, usual: str) -> Diagnosis:
    """Return as a diagnosis what the engine does to a reducer that is right under the usual one."""
    known = subject.engine.deviates
    assert known is not None
    sentence = f"what engine {usual} asks for; this trainer {known.instead}"
    bug = KnownBug(subject.engine.name, sentence, known.seen, known.fix)
    return Diagnosis(sentence, None, bug, sentence)


def is_right(seen: WeightObservation) -> bool:
    """Whether the weights are the mode's; where that is unknown, those that one rank gives."""
    if seen.expected is not None:
        return close(seen.observed, seen.exact)
    return seen.trivial is not None and close(seen.observed, seen.trivial)


def diagnose_mask(
    subject: Subject, finding: Finding, observations: Sequence[WeightObservation]
) -> Diagnosis | None:
    """Masked tokens that have a weight, if that is what these show."""
    shown = shown_by_weights(observations, masked=True) if observations else None
    return _shown(_clues(subject, finding), shown) if shown is not None else None


def diagnose_behind(subject: Subject, finding: Finding, seen: MaskLeak) -> Diagnosis | None:
    """Return the mistake that lets values behind the mask do this."""
    bug = known_bug(replace(_clues(subject, finding), behind=seen))
    return Diagnosis(bug.sentence, None, bug, _apart(bug.sentence)) if bug is not None else None


def diagnose_nonlinear(
    subject: Subject, finding: Finding, count: ClosedForm | None, *signs: str
) -> Diagnosis | None:
    """``count``: a local count that the objective has in place of the step's, if one was found."""
    if count is None:
        return recognised(subject, finding, *signs)
    term = count.inner or count.outer[0]
    sentence = f"a count is that of what is at hand, not the step's: {term.text}"
    return _diagnosis(subject, replace(_clues(subject, finding, COUNT), form=count), None, sentence)


def diagnose_not_finite(
    subject: Subject, finding: Finding, observations: Sequence[WeightObservation]
) -> Diagnosis | None:
    """Return the mistake that makes something not finite, from where it does."""
    seen = not_finite(observations)
    sentence = in_words(seen) if seen is not None else None
    bug = known_bug(Clues(subject.mode, subject.engine, not_finite=seen))
    if sentence is None or bug is None:
        return None
    return Diagnosis(sentence, None, bug, _apart(sentence))


def _apart(root: str) -> str:
    """Mark a root as not finite: such causes are never one with those of wrong weights."""
    return f"not finite: {root}"


def _clues(subject: Subject, finding: Finding, *signs: str) -> Clues:
    error = finding.fault.error if finding.fault is not None else None
    known = {finding.traits.symptom, *finding.signs, *signs, error.breach if error else ""}
    return Clues(subject.mode, subject.engine, frozenset(known), error=error)


def _explained(
    subject: Subject,
    finding: Finding,
    observations: Sequence[WeightObservation],
    also_observed: Sequence[WeightObservation] = (),
) -> Diagnosis | None:
    """Every clue there is in the weights, and the bug that left them.

    ``also_observed``: where one rank is right; the computation that is reported instead, whatever
    the step, must hold there, too.
    """
    if not observations:
        return None
    seen = _clues(subject, finding)
    partial = partial_form(observations)
    if partial is not None:
        signs = seen.signs | {partial.left_out.sign}
        return _diagnosis(subject, replace(seen, signs=signs, form=partial.form), partial)
    shown = shown_by_weights(observations)
    if shown is not None:
        return _shown(seen, shown)
    if not all(np.isfinite(o.observed).all() for o in observations):
        return None
    if all(o.expected is not None and close(o.observed, o.exact) for o in observations):
        return None  # nothing to explain
    shown = other_reading(subject, observations) or exchanged(subject, observations)
    if shown is not None:
        return _shown(seen, shown)
    forms = closed_forms(observations)
    factor = _factor(subject, finding, observations)
    seen = replace(seen, form=forms[0] if forms else None, factor=factor)
    everywhere = [*observations, *also_observed]
    shown = other_mode(subject, everywhere)
    if shown is None and not forms and factor is None:
        shown = distorted_count(everywhere)
    if shown is not None:
        return _shown(seen, shown)
    if forms or factor:
        found = _formula(subject, seen, observations)
        # Where one rank is wrong too, it is no factor of the weights that are shown as expected.
        expected = finding.expected
        if factor and expected and not factor_gives(factor, subject, finding, expected):
            return replace(found, factor=None, off=None)
        return found
    return _relative(subject, finding, seen, observations)


def diagnose_term(
    subject: Subject, finding: Finding, observations: Sequence[WeightObservation]
) -> Diagnosis | None:
    """Return what an auxiliary term is, in units of its coefficient.

    A factor over what it should be, or a formula.
    """
    if (partial := partial_form(observations)) is not None:
        return _of_term(finding, partial.sentence)
    if (factor := common_factor(subject, observations)) is not None:
        bug = known_bug(replace(_clues(subject, finding), factor=factor))
        root = f"{factor.sentence} ({finding.term})"
        return Diagnosis(factor.sentence, factor.name, bug, root, off=factor.off)
    forms = closed_forms(observations)
    return _of_term(finding, forms[0].sentence) if forms else None


def _of_term(finding: Finding, sentence: str) -> Diagnosis:
    summary = f"{sentence}, apart from its coefficient"
    return Diagnosis(summary, None, None, f"{summary} ({finding.term})")


def _formula(subject: Subject, seen: Clues, observations: Sequence[WeightObservation]) -> Diagnosis:
    signs, sentences = set(seen.signs), []
    if seen.factor is not None:
        sentences.append(seen.factor.sentence)
        if undivided_sums(observations):
            signs.add("undivided-sum")
        if not seen.factor.sizes:
            signs.add("constant-factor")
    if seen.form is not None:
        sentences.append(seen.form.sentence)
        if seen.form.is_a_number:
            signs.add("divided-by-a-number")
    seen = replace(seen, signs=frozenset(signs))
    return _diagnosis(subject, seen, seen.form, ": ".join(sentences))


def _relative(
    subject: Subject, finding: Finding, seen: Clues, observations: Sequence[WeightObservation]
) -> Diagnosis | None:
    """Return as a diagnosis a factor over one rank's own weights, where one fits.

    It is asked for when the formula is wrong or unknown already.
    """
    if any(o.trivial is None or not np.isfinite(o.trivial).all() for o in observations):
        return None
    factor = _factor(subject, finding, [o.relative_to_trivial for o in observations])
    if factor is None:
        return None
    return _diagnosis(subject, replace(seen, factor=factor), None, factor.sentence)


def _shown(seen: Clues, shown: ObservedSign) -> Diagnosis:
    bug = known_bug(replace(seen, signs=seen.signs | {shown.sign}))
    factor, off = _named(seen)
    return Diagnosis(shown.sentence, factor, bug, shown.sentence, off=off)


def _named(seen: Clues) -> tuple[str | None, str | None]:
    """Return the factor's name, and how wrong it makes gradients."""
    return (None, None) if seen.factor is None else (seen.factor.name, seen.factor.off)


def _diagnosis(
    subject: Subject, seen: Clues, form: Predicts | None, sentence: str = ""
) -> Diagnosis:
    """Return a formula or a factor, with the bug that it is known as.

    Where no bug accounts for all of it, the formula in words is the cause, and the fix is to return
    what the engine requires.
    """
    sentence = sentence or (form.sentence if form is not None else "")
    own = whole(seen.form, subject) if seen.form is not None else frozenset(PARTS)
    bug, wanted = known_bug(seen, own), requirement(subject)
    if bug is None and wanted is not None:
        known = bugs_of_parts(seen)
        where = ", ".join(dict.fromkeys(b.seen for b in known))
        name = known[0].name if known else "another-formula"
        bug = KnownBug(name, sentence, where or "no historic bug is known to be this", wanted)
    elif bug is not None and wanted is not None and needs_no_count(subject):
        bug = structs.replace(bug, fix=wanted)  # the bug's own speaks of a count to divide by
    elif bug is not None and wanted is not None and seen.form is not None:
        part = isinstance(form, PartialForm)
        if bug.leaves_out(own) or (part and len(own) < len(PARTS)):
            first = f"{bug.sentence}; all others: " if part else ""
            bug = structs.replace(bug, sentence=first + described(seen.form), fix=wanted)
    factor, off = _named(seen)
    return Diagnosis(sentence, factor, bug, form.sentence if form else sentence, form, off)


def _value(
    subject: Subject, finding: Finding, tiers: Sequence[Sequence[WeightObservation]]
) -> Diagnosis | None:
    # A constant is added once per rank and micro-batch: first look where there is only one.
    alone = [o for o in tiers[0] if o.case.layout.is_trivial]
    for tier in (alone, *reversed(tiers)):
        found = off_value(subject, tier)
        if found is not None:
            shown, factor = found
            return _shown(replace(_clues(subject, finding), factor=factor), shown)
    return None


__all__ = [
    "Diagnosis",
    "Factor",
    "KnownBug",
    "Poison",
    "WeightObservation",
    "deviation",
    "diagnose",
    "diagnose_behind",
    "diagnose_mask",
    "diagnose_nonlinear",
    "diagnose_not_finite",
    "diagnose_term",
    "distinguishing_case",
    "is_right",
    "mask_leak",
    "merge_diagnoses",
    "not_finite",
    "poisoned",
    "recognised",
    "stated",
]
