"""Failures that a test file expects: each is one stored case, run again and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from aggverify.errors import InputError
from aggverify.report import baseline
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning.naming import canonical
from aggverify.testing.parametrization import ConformanceCell, Entry
from aggverify.testing.rootdir_paths import placed


@dataclass(frozen=True, slots=True)
class Expected:
    """The case of one entry, and why it may fail."""

    stored: StoredCase
    reason: str

    @property
    def what(self) -> str:
        return f"{self.stored.code}:{self.stored.id}"


def of(cell: ConformanceCell, root: Path, report_dir: Path) -> tuple[Expected, ...]:
    """Return what is expected of this cell; raises InputError for a case that is not stored."""
    every = [_read(entry, report_dir) for entry in cell.xfail]
    every += [] if cell.baseline is None else _known(root / cell.baseline)
    return tuple(expected for expected in every if _is_about(expected.stored, cell, root))


def all_found(cells: Sequence[ConformanceCell], root: Path, report_dir: Path) -> None:
    """Raise InputError for an entry that is about none of these cells of one test.

    Also for a file of known findings that is none. Such a file may be about any reducer.
    """
    for file in {cell.baseline for cell in cells if cell.baseline is not None}:
        _known(root / file)
    for entry in dict.fromkeys(entry for cell in cells for entry in cell.xfail):
        stored = _read(entry, report_dir).stored
        if not any(entry in c.xfail and _is_about(stored, c, root) for c in cells):
            mode, engine = stored.claim.mode, stored.claim.engine
            raise InputError(
                f"xfail: {entry[0]} matches no check of this test: it was stored of "
                f"{stored.whose[0]}, {stored.check}, mode {mode}, engine {engine}"
            )


def _known(path: Path) -> list[Expected]:
    """Return what a baseline knows of; what has expired is expected no longer."""
    try:
        found = baseline.load(path).known
    except InputError as error:
        raise InputError(f"xfail: {error}") from None
    today = date.today()
    return [Expected(e.known.stored, e.reason) for e in found if not e.is_over(today)]


def _read(entry: Entry, report_dir: Path) -> Expected:
    name, _, case = entry[0].partition(":")
    try:
        stored = store.read(case, report_dir)
    except InputError as error:
        raise InputError(f"xfail: {error}") from None
    if stored.code != name:
        raise InputError(f"xfail: case {case} was stored as {stored.code}, not as {name}")
    return Expected(stored, entry[1])


def _is_about(stored: StoredCase, cell: ConformanceCell, root: Path) -> bool:
    """As far as is known before the reducer is imported."""
    return (
        stored.check == cell.check
        and store.concerns(stored, placed(cell.target, root))
        and (cell.mode is None or canonical(cell.mode)[0] == stored.claim.mode)
        and cell.engine in (None, stored.claim.engine)
    )
