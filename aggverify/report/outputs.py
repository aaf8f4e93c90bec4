"""Takes a verdict document to the places a person asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from aggverify.errors import InputError
from aggverify.files import append, write_inside
from aggverify.model import Document
from aggverify.report import formats
from aggverify.report.formats import FORMATS, Format


@dataclass(frozen=True, slots=True)
class ReportOutputs:
    """Files in a folder, and what GitHub Actions reads."""

    directory: Path
    formats: Mapping[str, Format]
    github: bool
    shown: frozenset[str] = frozenset()
    """Those that go to standard output instead of a file."""

    @staticmethod
    def to(directory: Path, names: Iterable[str], *, github: bool) -> ReportOutputs:
        """Check the formats' names; raises InputError."""
        parts = [name.partition("=") for name in names]
        for name, equals, place in parts:
            if equals and place.strip() != "-":
                raise InputError(f"--report {name}= takes - (standard output), got {place!r:.200}")
        shown = frozenset(name.strip() for name, equals, _ in parts if equals)
        wanted = formats.chosen(name for name, _, _ in parts)
        return ReportOutputs(directory, wanted, github, shown)

    def deliver(self, document: Document, target: str) -> list[tuple[str, Exception]]:
        """Write every format and print where; with ``github`` annotate and add to the summary.

        What cannot be written costs nothing else: it is handed back, each with what went wrong.
        """
        wrong: list[tuple[str, Exception]] = []
        for name, each in self.formats.items():
            try:
                if name in self.shown:
                    click.echo(each.render(document), nl=False)
                    continue
                path = write_inside(self.directory, each.file, each.render(document))
                click.echo(f"{each.what}: {path}", err=bool(self.shown))
            except Exception as error:
                wrong.append((each.what, error))
        if self.github:
            try:
                self._annotate_github(document, target)
            except Exception as error:
                wrong.append(("annotations", error))
        return wrong

    def _annotate_github(self, document: Document, target: str) -> None:
        from aggverify.report.github import commands

        workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
        for line in commands(document, workspace, target):
            click.echo(line)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if not summary:
            return
        try:
            append(Path(summary), FORMATS["md"].render(document) + "\n")
        except OSError as error:  # the verdict stands, whatever becomes of its summary
            click.echo(f"aggverify: no step summary: {error}", err=True)
