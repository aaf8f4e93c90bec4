"""Findings that a person accepts are shown with the reason, and fail nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec import structs

from aggverify import model
from aggverify.codes.state import State
from aggverify.run.outcome.store import about
from aggverify.run.outcome.verdict import ReportedFinding, RunVerdict, counted, covered


def accepted(verdict: RunVerdict, waivers: Iterable[model.Waiver]) -> RunVerdict:
    """Return the verdict with these waivers applied.

    Of a baseline, those that are about its subject.
    """
    mine = about(verdict.subject.claim)
    every = tuple(w for w in waivers if w.identity is None or w.identity.about == mine)
    of = [(w, covered(w, verdict.reports)[0]) for w in every]
    reports = tuple(
        replace(report, waived=next((w.reason for w, found in of if report in found), None))
        for report in verdict.reports
    )
    checks = tuple(_summary(check, reports) for check in verdict.checks)
    waived = tuple(counted(waiver, reports) for waiver in every)
    return replace(verdict, reports=reports, checks=checks, waivers=waived)


def _summary(check: model.CheckRecord, reports: Sequence[ReportedFinding]) -> model.CheckRecord:
    mine = [report for report in reports if report.finding.check == check.name]
    waived = check.state is State.FAILED and not any(report.fails for report in mine)
    return structs.replace(check, state=State.WAIVED) if waived else check
