"""Findings that a command is given beforehand: other versions' documents, and a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from aggverify.escape import line
from aggverify.model import Document, Replay, Waiver
from aggverify.report import baseline
from aggverify.report.baseline import Baseline
from aggverify.report.document import document, stopped
from aggverify.report.formatting import counted
from aggverify.run.again import KnownFinding
from aggverify.run.outcome.verdict import RunVerdict


@dataclass(frozen=True, slots=True)
class ImportedFindings:
    """Findings whose cases are run again; of these, the ones that are accepted."""

    findings: tuple[KnownFinding, ...]
    baseline: Baseline | None
    path: Path | None
    write: bool
    today: date

    @staticmethod
    def of(
        findings: tuple[KnownFinding, ...], path: Path | None, *, write: bool
    ) -> ImportedFindings:
        """Add the findings of the baseline at ``path``; raises InputError for what is none."""
        known = None if path is None else baseline.load(path, missing=write)
        entries = () if known is None else tuple(entry.known for entry in known.known)
        return ImportedFindings((*entries, *findings), known, path, write, date.today())

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        """What the baseline accepts."""
        return _waivers(self.baseline, self.today)

    def documented(
        self,
        verdicts: Sequence[RunVerdict],
        error: BaseException | None,
        where: Path,
        reruns: Sequence[Replay],
    ) -> Document:
        """Return the document of a command, with what stopped it and how the baseline stands."""
        if error is None:
            made = document(verdicts, where, reruns)
        else:
            made = stopped(verdicts, error, where, reruns)
        if self.baseline is None:
            return made
        return baseline.settled(made, tuple(baseline.standing(self.baseline, reruns, self.today)))

    def written(
        self,
        made: Document,
        verdicts: Iterable[RunVerdict],
        waivers: Iterable[Waiver],
        reruns: Sequence[Replay],
        where: Path,
    ) -> Document:
        """Write the baseline with what is new and without what is gone; return the new document.

        Raises InputError where the document is not complete, or the file cannot be written.
        """
        assert self.baseline is not None and self.path is not None
        new = baseline.merged(self.baseline, made)
        baseline.write(new, self.path)
        added = len({*_names(new)} - {*_names(self.baseline)})
        gone = len({*_names(self.baseline)} - {*_names(new)})
        summary = f"{counted(len(new.known), 'known finding')}, {added} new, {gone} taken out"
        click.echo(line(f"baseline: {self.path} ({summary})"))
        every = (*waivers, *_waivers(new, self.today))
        again = document([verdict.accepting(every) for verdict in verdicts], where, reruns)
        found = {finding.id for verdict in made.verdicts for finding in verdict.findings}
        return baseline.settled(again, tuple(baseline.standing(new, reruns, self.today, found)))


def _names(known: Baseline) -> list[str]:
    return [entry.what for entry in known.known]


def _waivers(known: Baseline | None, today: date) -> tuple[Waiver, ...]:
    return () if known is None else tuple(entry.waiver(today) for entry in known.known)
