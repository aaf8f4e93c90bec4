"""Whether the engine is the one that is named: one parameter's gradient before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from aggverify import model
from aggverify.audit import factor
from aggverify.audit.judging import JudgedFinding
from aggverify.audit.properties import ENGINE, REDUCTION
from aggverify.audit.records import Array, Record
from aggverify.audit.steps import RecordedRun
from aggverify.checks import Finding
from aggverify.codes.state import State
from aggverify.diagnosis import Diagnosis
from aggverify.execution.subject import Subject
from aggverify.oracles.bounds import PRECISIONS
from aggverify.run.outcome.verdict import summary

_SIMPLE = 64
"""A factor that is no fraction of smaller numbers is no engine's."""


def judged(
    subject: Subject, run: RecordedRun
) -> tuple[model.CheckRecord, tuple[JudgedFinding, ...]]:
    """Return the property, with a finding where what was measured is another factor."""
    steps = [s for s in run.steps if s.number in run.reductions]
    seen = [(step, *_measured(run, run.reductions[step.number])) for step in steps]
    seen = [one for one in seen if one[1] is not None]
    if not seen:
        why = "no parameter's gradient was seen both before and after the reduction"
        return _summary(0, State.NOT_JUDGED, why), ()
    for step, found, bound in seen:
        assert found is not None
        wanted = factor.reduction(subject.engine, run.ranks, step)
        if abs(found - float(wanted)) <= bound * abs(float(wanted)):
            continue
        ratio = Fraction(found / float(wanted)).limit_denominator(_SIMPLE)
        if not ratio or abs(found / float(wanted) - ratio) > bound * ratio:
            why = (
                f"in step {step.number} the update has {found:.6g} times the sum of all ranks' "
                f"gradients, and engine {subject.engine.name} makes it {wanted}: if gradients are "
                f"clipped, audit with clipping off"
            )
            return _summary(len(seen), State.NOT_JUDGED, why), ()
        text = (
            f"step {step.number}: one parameter's gradient in the update is {found:.6g} times the "
            f"sum of all ranks' own, and engine {subject.engine.name} makes it {wanted}"
        )
        root = f"the reduction is {ratio} times that of engine {subject.engine.name}"
        finding = Finding(REDUCTION, ENGINE.name, text, step.case, subject.mode)
        return _summary(len(seen), State.FAILED), (
            JudgedFinding(finding, Diagnosis(root, root=root)),
        )
    agreed = f"one parameter's gradient is reduced as engine {subject.engine.name} does"
    return _summary(len(seen), State.OK, established=agreed), ()


def _measured(run: RecordedRun, records: Sequence[Record]) -> tuple[float | None, float]:
    """Return the update over the sum of all ranks' gradients, and its relative bound."""
    mine = [r for r in records if not run.ranks.is_copy(r)]
    shapes = {tuple(r.arrays["shape"].tolist()) for r in mine}
    if len(shapes) != 1 or len(mine) * run.ranks.tp_size * run.ranks.pp_size != run.ranks.world:
        return None, 0.0
    before = np.stack([r.arrays["before"] for r in mine])
    after, total = mine[0].arrays["after"], before.sum(0)
    size = float(total @ total)
    if not size or after.shape != total.shape:
        return None, 0.0
    found = float(after @ total) / size
    if _norm(after - found * total) > 1e-2 * _norm(after):
        return None, 0.0  # the update is no multiple of the sum
    # Every rank's sum over micro-batches, the sum over ranks and its factor are rounded.
    unit = float(PRECISIONS["float32"].unit_roundoff)
    passes = max((step.case.layout.num_microbatches for step in run.steps), default=1)
    grown = float(np.abs(before).sum(0) @ np.abs(total)) / size
    return found, 2 * (len(mine) + passes + 8) * unit * grown


def _norm(values: Array) -> float:
    return float(np.sqrt(values @ values))


def _summary(
    cases: int, state: State, reason: str | None = None, established: str | None = None
) -> model.CheckRecord:
    return summary(ENGINE, cases, state, reason, established=established)
