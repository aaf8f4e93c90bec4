"""One diagnosis for all findings whose weights one formula gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks import Finding
from aggverify.codes import Diagnosed, Symptom
from aggverify.diagnosis.explanation import Diagnosis, Predicts
from aggverify.diagnosis.observation import close

WithDiagnosis = tuple[Finding, Diagnosis | None]


def merge_diagnoses(diagnosed: Sequence[WithDiagnosis]) -> list[Diagnosis | None]:
    """Return the diagnoses, as few as explain the findings.

    A formula that gives the weights of other cases than its own is theirs as well, the one that
    gives most of them first.
    """
    found = [diagnosis for _, diagnosis in diagnosed]
    open_ = {n for n, (finding, diagnosis) in enumerate(diagnosed) if _is_open(finding, diagnosis)}
    candidates = [d for n in open_ if (d := found[n]) is not None and d.form is not None]
    while open_ and candidates:
        reach = [{n for n in open_ if reproduces(d, diagnosed[n][0])} for d in candidates]
        best = min(
            range(len(candidates)),
            key=lambda i: (-len(reach[i]), candidates[i].form.cost),  # type: ignore[union-attr]
        )
        if not reach[best]:
            break
        for n in reach[best]:
            found[n] = _on_its_step(candidates[best], found[n])
        open_ -= reach[best]
        candidates = [d for n in open_ if (d := found[n]) is not None and d.form is not None]
    return _not_linear(diagnosed, found)


def _not_linear(
    diagnosed: Sequence[WithDiagnosis], found: list[Diagnosis | None]
) -> list[Diagnosis | None]:
    """Where weights depend on the losses, they explain wrong weights that nothing else does."""
    known = [d for f, d in diagnosed if f.traits.symptom is Symptom.NOT_LINEAR and d is not None]
    if not known:
        return found
    pairs = zip(diagnosed, found, strict=True)
    return [known[0] if d is None and _is_open(f, None) else d for (f, _), d in pairs]


def _on_its_step(shared: Diagnosis, own: Diagnosis | None) -> Diagnosis:
    """Return a shared diagnosis without a factor not seen on this finding's own observations."""
    seen = own is not None and own.factor == shared.factor
    return shared if seen else replace(shared, factor=None, off=None)


def _is_open(finding: Finding, diagnosis: Diagnosis | None) -> bool:
    """Whether it is about finite weights, and diagnosed by a formula or not at all."""
    weights = finding.observed is not None and not finding.not_finite
    by_weights = weights and finding.traits.diagnosed is Diagnosed.WEIGHTS
    return by_weights and (diagnosis is None or diagnosis.form is not None)


def reproduces(diagnosis: Diagnosis, finding: Finding) -> bool:
    """Whether its formula gives the finding's own weights.

    The worst one within its bound, or within a quarter of its error.
    """
    form = diagnosis.form
    return form is not None and gives(form, finding)


def gives(form: Predicts, finding: Finding) -> bool:
    """Whether a formula gives the finding's own weights, as closely as :func:`reproduces` asks."""
    assert finding.observed is not None
    step = finding.case.step
    mask = np.frombuffer(b"".join(s.loss_mask for s in step.samples), dtype=np.uint8).astype(bool)
    observed = np.array(finding.observed)
    if observed[~mask].any() or not mask.any():
        return False
    foretold = form.predict([finding.case])
    if not close(observed[mask], foretold) or finding.token is None or not mask[finding.token]:
        return False
    if finding.error is None:
        return True
    place = int(mask[: finding.token].sum())
    off = abs(Fraction(finding.observed[finding.token]) - Fraction(float(foretold[place])))
    return off <= max(finding.bound or 0, finding.error / 4)
