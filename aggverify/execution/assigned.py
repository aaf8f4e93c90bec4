"""A run spec under its claim as data for ranks."""

from __future__ import annotations

from dataclasses import fields

from aggverify.conventions import EXPERTS
from aggverify.execution.claim import NONLINEAR
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.trainer.assignment import Assignment

DIVISOR = 16.0
"""Of modes that are run next to the claimed one, to which the person's divisor does not belong."""
_SHARED = tuple(f.name for f in fields(RunSpec) if f.name in Assignment.__struct_fields__)


def assignment(subject: Subject, wanted: RunSpec, note: int, *, usual: bool) -> Assignment:
    """``note``, ``usual``: as in ``Assignment``."""
    asked = {name: getattr(wanted, name) for name in _SHARED}
    asked |= {
        "mode": subject.claim.mode if wanted.mode is None else wanted.mode,
        "term": wanted.term if subject.terms else None,
    }
    return Assignment(
        function=subject.function,
        convention=subject.claim.convention,
        engine=subject.engine.name,
        divisor=subject.divisor if wanted.mode in (None, subject.mode, NONLINEAR) else DIVISOR,
        counts_rejected=subject.policy.denominators == "original",
        generations="generations" in subject.features,
        experts=EXPERTS in subject.features,
        note=note,
        usual=usual,
        terms=len(subject.terms),
        **asked,
    )
