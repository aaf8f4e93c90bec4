"""What a run says of an untuned reducer, until the first finding that fails it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggverify.oracles import MODES
from aggverify.run.outcome.events import Event, Found
from aggverify.run.outcome.verdict import ReportedFinding, Verdict, exit_code
from aggverify.run.planning.request import Request
from aggverify.run.session import verify
from aggverify.world import Pool
from tests.branchy.untuned.base import Untuned

UNSEEN = ("AGVW17", "AGVW18")
"""Warnings that name lines which never ran, at all or on several ranks."""
DIVISOR = 16.0
"""For modes that need one."""
Row = dict[str, Any]


class _Enough(Exception):
    """A finding that fails is confirmed."""


def judged(entry: Untuned, seed: int, pool: Pool) -> Row:
    """Exit code and findings of the default run, which ends at its first finding that fails."""
    found: list[ReportedFinding] = []

    def emit(event: Event) -> None:
        if isinstance(event, Found):
            found.append(event.report)
            if event.report.fails and event.report.confirmed:
                raise _Enough

    verdicts: Sequence[Verdict] = ()
    try:
        divisor = DIVISOR if MODES[entry.mode].needs_divisor else None
        request = Request(target=entry.target, modes=(entry.mode,), seed=seed, divisor=divisor)
        verdicts = verify(request, emit, pool=pool)
    except _Enough:
        code = 1
    else:
        code = int(exit_code(verdicts))
    weak = [w.detail for v in verdicts for w in v.weaknesses if w.code in UNSEEN]
    return {"exit": code, "findings": [_told(report) for report in found], "unseen": weak}


def _told(report: ReportedFinding) -> Row:
    """What is kept of a finding."""
    diagnosis = report.diagnosis
    return {
        "code": report.finding.code,
        "check": report.finding.check,
        "message": report.finding.message,
        "bug": diagnosis.bug.name if diagnosis is not None and diagnosis.bug is not None else "",
        "cause": diagnosis.sentence if diagnosis is not None else "",
        "confirmed": report.confirmed,
    }
