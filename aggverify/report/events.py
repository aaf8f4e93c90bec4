"""Listens to events and writes each as a line of JSON at once, so that others can follow a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aggverify.execution.subject import Subject
from aggverify.files import append, write_inside
from aggverify.report import document, findings, ndjson
from aggverify.report.findings import USUAL
from aggverify.report.model import Document
from aggverify.run.outcome.events import (
    CheckFinished,
    CheckStarted,
    Event,
    Finished,
    Found,
    Measured,
    Progress,
    Seen,
    SubjectChosen,
    Waiting,
)


@dataclass(slots=True)
class Events:
    """A file that grows. The first thing that goes wrong is kept, and nothing more is written."""

    directory: Path = USUAL
    name: str = "events.ndjson"
    error: Exception | None = None
    _path: Path | None = None
    _subject: Subject | None = None

    def __call__(self, event: Event) -> None:
        """Write one event."""
        if isinstance(event, SubjectChosen):
            self._subject = event.subject
        self._add(lambda: self._line(event))

    def finish(self, made: Document) -> Path:
        """Write how the command ended; raises what went wrong on the way."""
        self._add(lambda: ndjson.finished(made))
        if self.error is not None:
            raise self.error
        assert self._path is not None
        return self._path

    def _add(self, line: Callable[[], str]) -> None:
        if self.error is not None:
            return
        try:
            if self._path is None:
                self._path = write_inside(self.directory, self.name, "")
            append(self._path, line())
        except Exception as error:  # the run goes on without it
            self.error = error

    def _line(self, event: Event) -> str:
        match event:
            case SubjectChosen(subject=subject, checks=checks):
                claim = subject.claim
                said = ("target", "function", "convention", "engine", "seed")
                known = {name: getattr(claim, name) for name in said}
                return ndjson.line("subject", **known, mode=subject.mode_name, checks=checks)
            case CheckStarted(name=name, title=title):
                return ndjson.line("check_started", name=name, title=title)
            case Progress(check=check, executed=executed, phase=phase):
                return ndjson.line("progress", check=check, executed=executed, phase=str(phase))
            case Waiting(what=what):
                return ndjson.line("waiting", what=what)
            case Measured(check=check, seconds=seconds, peak_bytes=peak):
                return ndjson.line("measured", check=check, seconds=seconds, peak_bytes=peak)
            case CheckFinished(summary=summary):
                return ndjson.check(document.summarised(summary))
            case Seen(finding=finding):
                return ndjson.line("seen", code=finding.code, title=finding.traits.title)
            case Found(report=report):
                subject = self._subject or Subject.of(report.stored.claim)
                return ndjson.finding(findings.reported(report, report, subject, self.directory))
            case Finished(verdict=verdict):
                return ndjson.verdict(document.written(verdict, self.directory))
