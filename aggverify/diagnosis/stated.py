"""What a finding's weights are where no factor is named: this distinguishes two mistakes."""

from __future__ import annotations

import math
from fractions import Fraction

from aggverify.checks import Finding
from aggverify.diagnosis.explanation import Diagnosis

_SIMPLE = 10**6
_SAME = Fraction(1, 10**12)


def stated(finding: Finding, diagnosis: Diagnosis | None) -> str | None:
    """Return the formula in a sentence.

    Without one the cause in words with the ratio at the worst token, or the exception and its line;
    None where a factor is named, or nothing is known.
    """
    if diagnosis is not None and diagnosis.factor is not None:
        return None
    if diagnosis is not None and diagnosis.form is not None:
        return diagnosis.form.sentence
    error = finding.fault.error if finding.fault is not None else None
    parts = [
        finding.term,
        diagnosis.sentence if diagnosis is not None else None,
        _ratio(finding),
        f"{error.type} in {error.candidate_line}" if error is not None else None,
    ]
    return "; ".join(filter(None, parts)) or None


def _ratio(finding: Finding) -> str | None:
    token = finding.token
    if token is None or finding.observed is None or finding.expected is None:
        return None
    observed, expected = finding.observed[token], finding.expected[token]
    if not math.isfinite(observed) or not expected:
        return f"{observed:.6g} for {float(expected):.6g}"
    exact = Fraction(observed) / expected
    simple = exact.limit_denominator(_SIMPLE)
    return f"x {simple if abs(simple - exact) <= _SAME * abs(exact) else f'{float(exact):.6g}'}"
