"""Whether what a diagnosis states, evaluated on the finding's own step, is what was observed."""

from __future__ import annotations

import math
from fractions import Fraction

from aggverify.checks import Finding
from aggverify.diagnosis import Diagnosis
from aggverify.steps.case import Case

_ROUNDED = {"bfloat16": 2.0**-5, "float16": 2.0**-8, "float32": 2.0**-16}
"""What a few roundings change at most; of float64 what forms are matched by."""


def contradicted(finding: Finding, diagnosis: Diagnosis | None, divisor: float | None) -> bool:
    """Whether the formula or the factor gives another weight at the worst token."""
    token, observed, expected = finding.token, finding.observed, finding.expected
    if diagnosis is None or token is None or observed is None or expected is None:
        return False
    actual, near = observed[token], _ROUNDED.get(finding.case.dtype, 1e-6)
    if not math.isfinite(actual):
        return False
    foretold = []
    if diagnosis.form is not None:
        mask = [bit for sample in finding.case.step.samples for bit in sample.loss_mask]
        weights = iter(diagnosis.form.predict([finding.case]).tolist())
        foretold.append([next(weights) if bit else 0.0 for bit in mask][token])
    if diagnosis.factor is not None and expected[token]:
        foretold.append(float(expected[token] * _value(diagnosis.factor, finding.case, divisor)))
    return any(abs(actual - each) > near * abs(each) for each in foretold)


def _value(factor: str, case: Case, divisor: float | None) -> Fraction:
    """A factor by its name, as in ``cp_size*dp_size/N`` or ``1/(2*K)``, on a step."""
    step, layout = case.step, case.layout
    sizes = {
        "cp_size": layout.cp_size,
        "dp_size": layout.dp_size,
        "num_microbatches": layout.num_microbatches,
        "N": step.num_rollouts,
        "P": step.num_groups,
        "num_tokens": max(step.num_unmasked, 1),
        "num_samples": len(step.samples),
        "max_len": max(s.response_length for s in step.samples),
        "L": Fraction(divisor or 1),
    }
    above, _, below = factor.partition("/")
    value = Fraction(1)
    for part, power in ((above, 1), (below.strip("()"), -1)):
        for name in filter(None, part.split("*")):
            value *= Fraction(sizes[name] if name in sizes else int(name)) ** power
    return value
