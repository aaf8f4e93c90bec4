"""What the tests of one process share: ranks, what is known of every reducer, stored cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aggverify.api.running import request
from aggverify.checks import check
from aggverify.errors import AggverifyError, InputError
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.files import os_error_text
from aggverify.oracles import OracleError
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.run.outcome.verdict import ReportedFinding, RunVerdict
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.naming import canonical
from aggverify.run.planning.request import Request
from aggverify.run.planning.waiver import accepting
from aggverify.run.search.example_database import StoredExamples
from aggverify.run.search.smoke import smoke_test
from aggverify.run.session import examine
from aggverify.testing.parametrization import ConformanceCell
from aggverify.testing.ranks import Loaded, SharedRanks
from aggverify.testing.rootdir_paths import below, placed
from aggverify.testing.shared_discovery import once


@dataclass(frozen=True, slots=True)
class PreparedSubject:
    """What has to be known of a reducer under one mode and engine before any check."""

    subject: Subject
    first: ReportedFinding | None
    """How it fails on the simplest step: then nothing else of it is looked into."""


class SessionState:
    """Runs cells; ``close`` ends every rank.

    ``root``: where paths start. ``usual``: options that hold where a test gives none.
    ``shared``: a folder that all processes of the session have, if there are several.
    """

    def __init__(
        self, root: Path, report_dir: Path, usual: Mapping[str, Any], shared: Path | None
    ) -> None:
        self._root, self._report_dir, self._usual = root, report_dir, usual
        self.where = below(report_dir, Path.cwd())
        """Where cases are stored, as it is written where pytest was started."""
        self._shared, self._ranks = shared, SharedRanks()
        self._known: dict[str, PreparedSubject | AggverifyError] = {}
        self._stored: tuple[tuple[StoredCase, ...], tuple[str, ...]] | None = None
        self._broken: set[str] = set()

    def is_new(self, why: str) -> bool:
        """Whether no test of this process has failed for that reason yet."""
        new = why not in self._broken
        self._broken.add(why)
        return new

    def run(self, cell: ConformanceCell) -> RunVerdict:
        """Return the verdict of the cell's one check.

        Raises AggverifyError where nothing can be judged.

        Cases that earlier runs have stored come first; counterexamples are stored.
        """
        wanted, known, executor = self._with_discovery(cell)
        if self._stored is None:
            self._stored = store.every(self._report_dir)
        stored, unread = self._stored
        notes = [f"a stored case is not tried again: {why}" for why in unread]
        known = replace(known, subject=known.subject.noting(*notes))
        before = [s for s in stored if s.check == cell.check]
        mine = tuple(s for s in before if store.is_about(s, known.subject))
        verdict = self._examined(cell, known, executor, StoredExamples(mine))
        for found in verdict.reports:
            try:
                store.write(found.stored, self._report_dir)
            except OSError as error:  # what was found stands
                subject = verdict.subject.noting(f"a case is not stored: {os_error_text(error)}")
                verdict = replace(verdict, subject=subject)
        return verdict.accepting(wanted.waivers)

    def again(self, cell: ConformanceCell, stored: StoredCase, reason: str) -> RunVerdict:
        """Return the verdict of the cell's check on one stored case, whose finding is accepted.

        ``reason``: why it is. Raises AggverifyError where nothing can be judged.
        """
        _, known, executor = self._with_discovery(cell)
        if not store.is_about(stored, known.subject):
            raise InputError(
                f"case {stored.id} was stored of {stored.whose[0]} with other options than this "
                f"test has: replay it to see which, or store it anew"
            )
        subject = known.subject.knowing(trust_formula=stored.trust_formula)
        known = replace(known, subject=subject)
        verdict = self._examined(cell, known, executor, StoredExamples((stored,), only=True))
        return verdict.accepting([accepting(f"{stored.code}:{stored.id}", reason)])

    def _examined(
        self,
        cell: ConformanceCell,
        known: PreparedSubject,
        executor: Executor,
        before: StoredExamples,
    ) -> RunVerdict:
        executor.begin()
        try:
            return examine(
                known.subject,
                executor,
                checks=(check(cell.check),),
                known=True,
                first=known.first,
                before=before,
            )
        except OracleError as error:
            raise InputError(str(error)) from None

    def _with_discovery(self, cell: ConformanceCell) -> tuple[Request, PreparedSubject, Executor]:
        """Return request, subject and executor; what precedes all checks runs once per subject."""
        wanted = self._request(cell)
        loaded = self._ranks.of(wanted)
        key = repr((wanted, cell.mode))
        if key not in self._known:
            try:
                self._known[key] = self._prepared(cell, wanted, loaded)
            except OracleError as error:  # a person's own oracle can be wrong on any step
                self._known[key] = InputError(str(error))
            except AggverifyError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, AggverifyError):
            raise known
        return wanted, known, loaded.executor

    def _request(self, cell: ConformanceCell) -> Request:
        """Return the test's options, and where it gives none, the suite's."""
        mine = {"mode": cell.modes or None, "engine": cell.engine}
        named = {name: value for name, value in mine.items() if value is not None}
        given = {**self._usual, **cell.options, **named}
        for key in ("against", "adapter"):
            if given.get(key):
                given[key] = placed(given[key], self._root)
        return request(placed(cell.target, self._root), given)

    def _prepared(self, cell: ConformanceCell, wanted: Request, loaded: Loaded) -> PreparedSubject:
        subject, executor = _chosen(loaded.subjects(wanted), cell), loaded.executor
        first: ReportedFinding | None = None

        def find() -> Subject | None:
            nonlocal first
            executor.begin()
            first = smoke_test(subject, executor)
            return prepared(subject, executor) if first is None else None

        return PreparedSubject(once(subject, self._shared, find) or subject, first)

    def close(self) -> None:
        """End every rank; does nothing the second time."""
        self._ranks.close()


def _chosen(found: Sequence[Subject], cell: ConformanceCell) -> Subject:
    """Return the cell's own among the subjects of a line."""
    if len(found) == 1:
        return found[0]
    if cell.mode is None:
        known = ", ".join(repr(subject.mode) for subject in found)
        raise InputError(f"{found[0].function} has several modes: say modes=[{known}]")
    mode, _ = canonical(cell.mode)
    return next(subject for subject in found if subject.claim.mode == mode)
