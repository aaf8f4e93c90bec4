"""What the default run finds of a reducer that was written blind, until a finding fails it."""

from __future__ import annotations

from aggverify.run.outcome.events import ConfirmedFinding, Event
from aggverify.run.outcome.verdict import ReportedFinding, exit_code
from aggverify.run.planning.request import Request
from aggverify.run.session import verify
from aggverify.world import Pool
from tests.corpus.table import Blind


class _Enough(Exception):
    """A finding that fails is confirmed."""


def request(entry: Blind, seed: int = 0) -> Request:
    return Request(
        target=entry.target,
        modes=(entry.mode,),
        engine=entry.engine,
        divisor=entry.divisor,
        seed=seed,
    )


def judged(entry: Blind, seed: int, pool: Pool) -> tuple[int, str, str]:
    """Exit code, and code and bug of the last finding."""
    found: list[ReportedFinding] = []

    def emit(event: Event) -> None:
        if isinstance(event, ConfirmedFinding):
            found.append(event.report)
            if event.report.fails and event.report.confirmed:
                raise _Enough

    try:
        exits = int(exit_code(verify(request(entry, seed), emit, pool=pool)))
    except _Enough:
        exits = 1
    if not found:
        return exits, "", ""
    diagnosis = found[-1].diagnosis
    known = diagnosis.bug if diagnosis is not None else None
    return exits, found[-1].finding.code, known.name if known is not None else ""
