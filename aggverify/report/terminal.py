"""Listens to events and writes to a terminal: progress, finding blocks, inventory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from aggverify import escape
from aggverify.codes import CODES
from aggverify.model import Document, Verdict, harmless
from aggverify.report import text
from aggverify.report.document import written
from aggverify.report.findings import USUAL
from aggverify.report.formatting import counted
from aggverify.run.outcome.events import (
    CheckFinished,
    CheckStarted,
    ConfirmedFinding,
    Event,
    Finished,
    Measured,
    Phase,
    Progress,
    Seen,
    SubjectChosen,
    Waiting,
)

EVERY = 10.0
"""Seconds between two lines of progress where no live line is shown."""
LEAST = 12
"""Characters below which a shortened name is left out."""


@dataclass(slots=True)
class Terminal:
    """Progress on a live line, or a line now and then where there is none; then the verdict."""

    console: Console
    where: Path = USUAL
    """The directory in which cases are stored."""
    style: text.Style = text.USUAL
    live: bool = False
    """Whether one line shows progress and is written again and again."""
    clock: Callable[[], float] = time.monotonic
    _status: Status | None = None
    _started: float = 0.0
    _began: float = 0.0
    """When work on the current verdict began."""
    _shown: float = 0.0
    """When the last line of progress was written."""
    _checks: int = 0
    _done: int = 0
    _steps: int = 0
    """Of the current verdict."""
    _earlier: int = 0
    """Steps of the verdicts before it."""
    _findings: int = 0
    _seen: str = ""
    """Code of the first finding, shown as soon as it is confirmed, before its diagnosis."""

    def __post_init__(self) -> None:
        self._started = self._began = self._shown = self.clock()

    def __call__(self, event: Event) -> None:
        """Handle one event."""
        match event:
            case SubjectChosen():
                self._findings = self._done = 0
                self._seen, self._checks = "", event.checks
            case Seen():
                if not self._findings and not self._seen:
                    self._seen = event.finding.code
                    self._found(self._seen, event.finding.traits.title)
            case ConfirmedFinding():
                self._findings += 1
                code = CODES[event.report.finding.code]
                if (self._findings, code.code) != (1, self._seen):
                    self._found(code.code, code.title)
            case CheckStarted():
                self._show(event.name)
            case Progress():
                if event.phase is Phase.SMOKE:  # a verdict begins
                    self._earlier = event.executed
                self._steps = event.executed - self._earlier
                self._show(f"{event.check} {event.phase}")
            case Waiting():
                self._wait(event.what)
            case Measured():
                size = f"{event.peak_bytes / 2**30:.1f} GiB in the rank that held most"
                self._line(f"{self._now} {event.check}: {event.seconds:.1f} s, {size}")
            case CheckFinished():
                self._done += 1
            case Finished():
                self._finish(event)
                self._checks = self._done = self._findings = 0

    def close(self) -> None:
        """Take the live line away, whatever happened."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, what: str) -> None:
        """Show what is run now, how far it is, what was found, and how long it takes."""
        now = self.clock()
        passed = now - self._started
        n = min(self._done + 1, self._checks)
        at = f"check {n} of {self._checks}" if self._checks else "first step"
        findings = max(self._findings, bool(self._seen))
        parts = [f"{self._steps:,} steps", counted(findings, "finding")]
        parts += [f"{passed:.0f} s"] if self.live else []
        if self._done > 2:
            left = (now - self._began) / self._done * (self._checks - self._done)
            parts.append(f"~{left:.0f} s left")
        if self.live:
            self._live(at, what, "".join(f" · {part}" for part in parts))
        elif now - self._shown >= EVERY and not self.style.quiet:
            self._shown = now
            rest = "".join(f" · {part}" for part in parts)
            self._line(_fitting(f"{self._now} {at}", what, rest, self.style.width).plain)

    def _live(self, at: str, what: str = "", rest: str = "") -> None:
        words = _fitting(at, what, rest, self.console.width - len("⠋ "))
        if self._status is None:
            self._status = self.console.status(words)
            self._status.start()
        else:
            self._status.update(words)

    def _wait(self, what: str) -> None:
        if self.live:
            self._live(what)
        elif not self.style.quiet:
            self._line(f"{self._now} {what}")

    def _found(self, code: str, title: str) -> None:
        """One line when a finding is confirmed: its diagnosis may take seconds more."""
        if not self.style.quiet:
            self._line(f"{self._now} {code} {title}", "red")

    @property
    def _now(self) -> str:
        return f"[{self.clock() - self._started:5.1f} s]"

    def _finish(self, event: Finished) -> None:
        self.close()
        verdict = harmless(written(event.verdict, self.where))
        if not self.style.quiet and (self._findings or self._seen):
            self._line("")
        began, self._began = self._began, self.clock()
        self._verdict(verdict, self._began - began)

    def document(self, document: Document) -> None:
        """Print what was judged without events."""
        for verdict in harmless(document).verdicts:
            self._verdict(verdict)

    def _verdict(self, verdict: Verdict, seconds: float | None = None) -> None:
        for line in text.verdict_lines(verdict, self.style, seconds):
            self._line(line, style=text.coloured(line))

    def total(self, document: Document) -> None:
        """Print the last line, where there are several verdicts."""
        if len(document.verdicts) < 2:
            return
        passed = sum(verdict.conforms for verdict in document.verdicts)
        word = {0: "PASS", 1: "FAIL"}.get(document.exit, "NOT JUDGED")
        took = f"{self.clock() - self._started:.1f} s"
        line = f"{word}  {passed} of {len(document.verdicts)} verdicts pass, in {took}"
        self._line("")
        self._line(line, text.coloured(line))

    def _line(self, line: str, style: str | None = None) -> None:
        line = escape.line(line)
        self.console.print(
            line, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True
        )


def _fitting(at: str, what: str, rest: str, width: int) -> Text:
    """One line at any width: the name of what runs is shortened first, or left out."""
    room = width - len(at) - len(rest)
    name = Text(f": {what}" if what and room >= LEAST else "")
    name.truncate(max(room, 0), overflow="ellipsis")
    words = Text.assemble(at, name, rest)
    words.truncate(max(width, 0), overflow="ellipsis")
    return words
