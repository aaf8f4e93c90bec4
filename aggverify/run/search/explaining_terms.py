"""Observations made to explain an auxiliary term's finding, with everything else 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from aggverify.checks import Finding, linearity
from aggverify.checks.spaces import spread
from aggverify.codes import Symptom
from aggverify.diagnosis import Diagnosis, WeightObservation, diagnose_term, recognised
from aggverify.diagnosis.observation import Array
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.execution.term_readings import TERM_READINGS
from aggverify.generation.catalogue import grid, hard_cases, unit_case
from aggverify.steps.case import Case

_MOST = 1000
"""Response tokens of a step, at most, that is run with other losses."""


def explain_term(
    subject: Subject, finding: Finding, executor: Executor, own: Sequence[Case]
) -> Diagnosis | None:
    """Return what the term's weights are off by, or are instead, in units of the coefficient.

    That is the term's weight in a step of one token. ``own``: cases of the check that made the
    finding.
    """
    if finding.term is None or finding.observed is None:
        return None
    space = spread(subject, min_units=1)
    stored = [c for c in (*hard_cases(), *grid(subject.max_world, space.cp_kinds)) if c in space]
    cases = [replace(case, dtype="float64") for case in (unit_case(), finding.case, *own, *stored)]
    distinct = list(dict.fromkeys(each for case in cases for each in (case.trivial, case)))
    number = subject.terms.index(finding.term)
    specs = [RunSpec(case, term=number) for case in distinct]
    ran = {
        case: done.weights
        for case, done in zip(distinct, executor.run(subject, specs), strict=True)
        if done.weights is not None
    }
    unit = ran.get(cases[0])
    if unit is None or not np.isfinite(unit[0]) or not unit[0]:
        return None
    reading = subject.term_readings.get(finding.term)
    seen = list(_observations(ran, float(unit[0]), reading))
    kind = finding.case.layout.cp_kind
    same_kind = [o for o in seen if o.case.layout.cp_size == 1 or o.case.layout.cp_kind == kind]
    found = diagnose_term(subject, finding, seen) or diagnose_term(subject, finding, same_kind)
    return found or _by_the_losses(subject, finding, executor)


def _by_the_losses(subject: Subject, finding: Finding, executor: Executor) -> Diagnosis | None:
    """Return a diagnosis where, on that very step, weights of the losses depend on their values.

    The term was seen next to losses of 0.
    """
    case = replace(finding.case.trivial, dtype="float64")
    if case.step.num_response_tokens > _MOST:
        return None
    ran = executor.run(subject, linearity.variants(case))
    found = linearity.judge(subject, ran)
    if found is None or found.code != linearity.NOT_LINEAR:
        return None
    return recognised(subject, finding, Symptom.NOT_LINEAR)


def _observations(
    ran: dict[Case, Array], coefficient: float, reading: str | None
) -> Iterator[WeightObservation]:
    """Yield weights with those expected: of the reading, or without one, those of one rank."""
    for case, weights in ran.items():
        alone = ran.get(case.trivial)
        if not np.isfinite(weights).all() or alone is None or not np.isfinite(alone).all():
            continue
        expected = (
            tuple(Fraction(w / coefficient) for w in alone.tolist())
            if reading is None
            else TERM_READINGS[reading].weights(case)
        )
        yield WeightObservation(case, weights / coefficient, expected)
