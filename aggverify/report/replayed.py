"""A stored case that was run again, in the words of ``aggverify replay``."""

from __future__ import annotations

from aggverify.codes import CODES
from aggverify.report import escape, text
from aggverify.report.findings import judged
from aggverify.report.model import Finding, harmless
from aggverify.run.replay import Replayed
from aggverify.world import evidence


def finding(result: Replayed) -> Finding | None:
    """What it shows now."""
    return None if result.finding is None else harmless(judged(result.finding, result.subject))


def lines(result: Replayed) -> list[str]:
    """FIXED, FAILED, HAZARD, REFUSED or ERROR, and what there is to say of it."""
    before = result.stored.code
    before += f" {CODES[before].title}" if before in CODES else ""
    if result.fixed and result.refused:
        before += f" (the reducer refuses the step: {result.refused})"
    no = result.declined
    declined = None if no is None else f"{no.what}: '{no.words}'"
    unrun = None if no is not None else _unrun(result)
    known = escape.line(before)
    return list(text.replay_lines(result.stored.id, known, finding(result), unrun, declined))


def _unrun(result: Replayed) -> str | None:
    """Why there is neither a finding nor a result."""
    if result.finding is not None or result.fixed:
        return None
    if result.failure is None:
        return "no step of it was run"
    told = f"the reducer does not get through its step: {result.failure.message}"
    return "\n".join(filter(None, (told, evidence(result.failure))))
