"""A run spec under its claim as data for ranks."""

from __future__ import annotations

from aggverify.conventions import EXPERTS
from aggverify.execution.claim import NONLINEAR
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.trainer.assignment import Assignment

DIVISOR = 16.0
"""Of modes that are run next to the claimed one, to which the person's divisor does not belong."""


def assignment(subject: Subject, wanted: RunSpec, note: int, *, usual: bool) -> Assignment:
    """``note``, ``usual``: as in ``Assignment``."""
    return Assignment(
        case=wanted.case,
        function=subject.function,
        convention=subject.claim.convention,
        engine=subject.engine.name,
        mode=subject.claim.mode if wanted.mode is None else wanted.mode,
        divisor=subject.divisor if wanted.mode in (None, subject.mode, NONLINEAR) else DIVISOR,
        counts_rejected=subject.policy.denominators == "original",
        before=wanted.before,
        watch=wanted.watch,
        misuse=wanted.misuse,
        show=wanted.show,
        record=wanted.record,
        arrival=wanted.arrival,
        scale=wanted.scale,
        gain=wanted.gain,
        scaler=wanted.scaler,
        under=wanted.under,
        elsewhere=wanted.elsewhere,
        generations="generations" in subject.features,
        experts=EXPERTS in subject.features,
        virtual=wanted.virtual,
        note=note,
        noted=wanted.noted,
        usual=usual,
        terms=len(subject.terms),
        term=wanted.term if subject.terms else None,
    )
