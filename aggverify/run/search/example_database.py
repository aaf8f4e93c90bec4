"""Cases that earlier runs have stored, before anything new is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aggverify.checks import Finding
from aggverify.run.outcome.store import StoredCase
from aggverify.run.search.runner import CheckRun


@dataclass(frozen=True, slots=True)
class StoredExamples:
    """``only``: nothing else is run, and a finding that comes back is not looked into again."""

    stored: tuple[StoredCase, ...] = ()
    only: bool = False


NOTHING = StoredExamples()


def findings_again(run: CheckRun, stored: Sequence[StoredCase]) -> list[Finding]:
    """Return what cases of the check show now.

    Those that show what they were stored for, as they are; or else the first that shows something
    else, on its smallest case.
    """
    mine = [s for s in stored if s.check == run.check.name and s.case in run.space]
    if not mine:
        return []
    with run.executor.patient():
        judged = run.findings([s.case for s in mine])
    pairs = zip(mine, judged, strict=True)
    known = [found for case, found in pairs if found is not None and found.code == case.code]
    if known:
        return known
    other = next(filter(None, judged), None)
    return [] if other is None else [run.smaller(other)]
