"""Cases that earlier runs have stored, before anything new is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aggverify.checks import Finding
from aggverify.execution.subject import Subject
from aggverify.run.outcome.store import StoredCase, is_about
from aggverify.run.search.runner import CheckRun


@dataclass(frozen=True, slots=True)
class StoredExamples:
    """``only``: nothing else is run, and a finding that comes back is not looked into again."""

    stored: tuple[StoredCase, ...] = ()
    only: bool = False

    def judged(self, subject: Subject) -> Subject:
        """Return the subject as it is judged; ``only`` the cases as they were stored."""
        if not self.only:
            return subject
        return subject.knowing(trust_formula=all(s.trust_formula for s in self.stored))


NOTHING = StoredExamples()


def findings_again(run: CheckRun, stored: Sequence[StoredCase]) -> list[Finding]:
    """Return what cases of the check and its subject show now.

    Those that show what they were stored for, as they are; or else the first that shows something
    else, on its smallest case.
    """
    about = (s for s in stored if s.check == run.check.name and is_about(s, run.subject))
    mine = [s for s in about if s.case in run.space]
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
