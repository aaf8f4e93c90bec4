"""What the tests of one process share: ranks, stored cases, and one run of every reducer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aggverify.api.running import request
from aggverify.checks import Check, check, installed
from aggverify.errors import AggverifyError, InputError
from aggverify.execution.deadline import NEVER, Deadline
from aggverify.execution.subject import Subject
from aggverify.files import os_error_text
from aggverify.model import Verdict
from aggverify.report.document import written
from aggverify.run.opening import in_time, judging
from aggverify.run.outcome import store
from aggverify.run.outcome.events import Event, Finished
from aggverify.run.outcome.store import StoredCase
from aggverify.run.outcome.verdict import RunVerdict
from aggverify.run.planning.naming import canonical
from aggverify.run.planning.request import Request
from aggverify.run.planning.waiver import accepting
from aggverify.run.search.example_database import StoredExamples
from aggverify.run.session import examine
from aggverify.testing import expected_failures
from aggverify.testing.parametrization import ConformanceCell
from aggverify.testing.ranks import SharedRanks
from aggverify.testing.rootdir_paths import below, placed
from aggverify.testing.shared_run import Known, once


class SessionState:
    """Runs reducers; ``close`` ends every rank.

    ``root``: where paths start. ``usual``: options that hold where a test gives none.
    ``shared``: a folder that all processes of the session have, if there are several.
    ``selected``: every test of the session, so that a run has their checks and no others.
    """

    def __init__(
        self,
        root: Path,
        report_dir: Path,
        usual: Mapping[str, Any],
        shared: Path | None,
        selected: Iterable[ConformanceCell],
    ) -> None:
        self._root, self._report_dir, self._usual = root, report_dir, usual
        self._where = below(report_dir, Path.cwd())
        """Where cases are stored, as it is written where pytest was started."""
        self._shared, self._ranks = shared, SharedRanks()
        self._selected: defaultdict[str, list[ConformanceCell]] = defaultdict(list)
        for cell in selected:
            self._selected[cell.run_key].append(cell)
        self._known: dict[str, Known] = {}
        self._stored: tuple[tuple[StoredCase, ...], tuple[str, ...]] | None = None
        self._reported: dict[str, str] = {}
        """What was reported, and by which test."""

    def is_reported_by(self, test: str, what: str) -> bool:
        """Whether this test is the one that reports it: the first, however often that is run."""
        return self._reported.setdefault(what, test) == test

    def run(self, cell: ConformanceCell) -> Verdict:
        """Return the verdict of all selected checks of the cell's reducer, mode and engine.

        Raises AggverifyError where nothing can be judged. Cases that earlier runs have stored come
        first; counterexamples are stored.
        """
        if not self._is_known(cell, waits=False):
            # Another process is at it: meanwhile this one begins what tests to come will ask for.
            others = (other for other in self._to_come() if self._is_known(other, waits=False))
            if not any(self._is_known(cell, waits=False) for _ in others):
                self._is_known(cell, waits=True)
        known = self._known[cell.run_key]
        if isinstance(known, str):
            raise AggverifyError(known)
        return known

    def _is_known(self, cell: ConformanceCell, *, waits: bool) -> bool:
        """Whether there is what came of the cell's run, which is run here if no process is at it.

        ``waits``: for one that is.
        """
        key = cell.run_key
        if key not in self._known:
            # Where something else than our own errors ends it, no test begins it again.
            self._known[key] = "its run was stopped before there was a verdict"
            found = once(key, self._shared, lambda: self._verified(cell), waits=waits)
            if found is None:
                del self._known[key]
                return False
            self._known[key] = found
        return True

    def _to_come(self) -> Iterator[ConformanceCell]:
        """Yield a test of each run that is not known here; one that runs no stored case instead."""
        for key, cells in list(self._selected.items()):
            mine = (c for c in cells if not self._is_expected_to_fail(c))
            if key not in self._known and (first := next(mine, None)) is not None:
                yield first

    def _is_expected_to_fail(self, cell: ConformanceCell) -> bool:
        return bool(expected_failures.of(cell, self._root, self._report_dir))

    def again(self, cell: ConformanceCell, stored: StoredCase, reason: str) -> Verdict:
        """Return the verdict of the cell's check on one stored case, whose finding is accepted.

        ``reason``: why it is. Raises AggverifyError where nothing can be judged.
        """
        only = StoredExamples((stored,), only=True)
        verdict = self._examined(cell, self._request(cell), only, [check(cell.check)])
        if not store.is_about(stored, verdict.subject):
            raise InputError(
                f"case {stored.id} was stored of {stored.whose[0]} with other options than this "
                f"test has: replay it to see which, or store it anew"
            )
        accepted = [accepting(f"{stored.code}:{stored.id}", reason)]
        return written(verdict.accepting(accepted), self._where)

    def _verified(self, cell: ConformanceCell) -> Verdict:
        wanted = self._request(cell)
        if self._stored is None:
            self._stored = store.every(self._report_dir)
        stored, unread = self._stored
        notes = [f"a stored case is not tried again: {why}" for why in unread]

        def keep(event: Event) -> None:
            """Store also what was found before Ctrl-C."""
            if isinstance(event, Finished):
                self._keep(event.verdict)

        verdict = self._examined(
            cell,
            wanted,
            StoredExamples(stored),
            self._checks(cell),
            notes=notes,
            emit=keep,
            deadline=wanted.deadline(),
        )
        return written(self._keep(verdict).accepting(wanted.waivers), self._where)

    def _checks(self, cell: ConformanceCell) -> list[Check]:
        """Of all tests of this run; those of expected failures run their stored case instead."""
        names = {cell.check} | {
            each.check
            for each in self._selected[cell.run_key]
            if not self._is_expected_to_fail(each)
        }
        return [each for each in installed() if each.name in names]

    def _keep(self, verdict: RunVerdict) -> RunVerdict:
        """Store its counterexamples, and note those that cannot be: what was found stands."""
        for found in verdict.reports:
            try:
                store.write(found.stored, self._report_dir)
            except (OSError, InputError) as error:
                why = os_error_text(error) if isinstance(error, OSError) else str(error)
                subject = verdict.subject.noting(f"a case is not stored: {why}")
                verdict = replace(verdict, subject=subject)
        return verdict

    def _examined(
        self,
        cell: ConformanceCell,
        wanted: Request,
        before: StoredExamples,
        checks: Sequence[Check],
        *,
        notes: Sequence[str] = (),
        emit: Callable[[Event], None] = lambda event: None,
        deadline: Deadline = NEVER,
    ) -> RunVerdict:
        self._ranks.deadline = deadline
        try:
            with in_time():
                loaded = self._ranks.of(wanted, checks)
                with judging(self._ranks.turn):
                    subject = _chosen(loaded.subjects(wanted), cell).noting(*notes)
                    return examine(
                        subject,
                        loaded.executor,
                        emit,
                        checks=checks,
                        before=before,
                        deadline=deadline,
                    )
        finally:
            self._ranks.deadline = NEVER

    def _request(self, cell: ConformanceCell) -> Request:
        """Return the test's options, and where it gives none, the suite's."""
        mine = {"mode": cell.modes or None, "engine": cell.engine}
        named = {name: value for name, value in mine.items() if value is not None}
        given = {**self._usual, **cell.options, **named}
        for key in ("against", "adapter", "oracle"):
            if given.get(key):
                given[key] = placed(given[key], self._root)
        return request(placed(cell.target, self._root), given)

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
