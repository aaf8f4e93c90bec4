"""A stored case that was run again, in the words of ``aggverify replay``."""

from __future__ import annotations

from collections.abc import Iterator

from aggverify import escape
from aggverify.codes import CODES
from aggverify.model import FindingRecord, harmless
from aggverify.report import text
from aggverify.report.findings import judged
from aggverify.run.replay import Replayed
from aggverify.world import evidence


def finding(result: Replayed) -> FindingRecord | None:
    """Return what it shows now."""
    return None if result.finding is None else harmless(judged(result.finding, result.subject))


def lines(result: Replayed) -> list[str]:
    """Return FIXED, FAILED, HAZARD, REFUSED or ERROR, and the lines that explain it."""
    before = result.stored.code
    before += f" {CODES[before].title}" if before in CODES else ""
    if result.fixed and result.refused:
        before += f" (the reducer refuses the step: {result.refused})"
    no = result.declined
    declined = None if no is None else f"{no.what}: '{no.words}'"
    unrun = None if no is not None else _unrun(result)
    known = escape.line(before)
    shown = text.replay_lines(result.stored.id, known, finding(result), unrun, declined)
    return [*shown, *_printed(result)]


def _printed(result: Replayed) -> Iterator[str]:
    """Set apart by a bar; left to the evidence of a fault where rank 0 has one."""
    fault = result.failure if result.finding is None else result.finding.fault
    shown = fault is not None and fault.kind != "exception" and fault.rank == 0
    if result.printed and not shown:
        yield "rank 0 printed:"
        yield from (f"  | {escape.line(line)}" for line in result.printed.lines)


def _unrun(result: Replayed) -> str | None:
    """Why there is neither a finding nor a result."""
    if result.finding is not None or result.fixed:
        return None
    if result.failure is None:
        return "no step of it was run"
    message = f"the reducer does not get through its step: {result.failure.message}"
    return "\n".join(filter(None, (message, evidence(result.failure))))
