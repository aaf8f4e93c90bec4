"""Listens to events and writes to a terminal: progress, finding blocks, inventory."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape as literally
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

from aggverify.checks import Finding
from aggverify.codes import CODES
from aggverify.codes.state import State
from aggverify.report import escape, reading, text
from aggverify.report.document import written
from aggverify.report.findings import USUAL
from aggverify.report.model import harmless
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
from aggverify.run.outcome.verdict import Exit, ReportedFinding


@dataclass(slots=True)
class Terminal:
    """Progress on a live line (plain lines in CI), then the verdict."""

    console: Console
    where: Path = USUAL
    """The directory in which cases are stored."""
    _status: Status | None = None
    _started: float = field(default_factory=time.monotonic)
    _findings: int = 0
    _seen: bool = False

    def __call__(self, event: Event) -> None:
        """Handle one event."""
        match event:
            case SubjectChosen():
                self._findings, self._seen = 0, False
            case Seen():
                self._tell_first(event.finding)
            case Found():
                self._findings += 1
                self._tell(event.report)
            case CheckStarted():
                self._show(event.name)
            case Progress():
                at = f"{event.check} · {event.phase}"
                self._show(f"{at} · {event.executed} steps · {self._findings} findings")
            case Waiting():
                self._wait(event.what)
            case Measured():
                size = f"{event.peak_bytes / 2**30:.1f} GiB in the rank that held most"
                self._line(f"{self._now} {event.check}: {event.seconds:.1f} s, {size}")
            case CheckFinished():
                self._plain(event)
            case Finished():
                self._finish(event)

    def close(self) -> None:
        """Take the live line away, whatever happened."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, message: str) -> None:
        if not self.console.is_terminal:
            return
        seconds = time.monotonic() - self._started
        message = f"{literally(message)} · {seconds:.0f} s"
        if self._status is None:
            self._status = self.console.status(message)
            self._status.start()
        else:
            self._status.update(message)

    def _wait(self, what: str) -> None:
        self._show(what)
        if not self.console.is_terminal:
            self._line(f"{self._now} waits: {what}")

    def _plain(self, event: CheckFinished) -> None:
        if self.console.is_terminal:
            return
        done = event.summary
        state = "FAILED" if done.state is State.FAILED else str(done.state)
        state += f": {done.reason}" if done.reason else ""
        self._line(f"{self._now} {done.name}: {state}")

    def _tell_first(self, finding: Finding) -> None:
        """The first one as soon as it is confirmed; what it is may take seconds more."""
        if not self._seen and not self._findings:
            self._seen = True
            title = f"{finding.code} {finding.traits.title}"
            self._line(f"{self._now} {title}: confirmed, its cause is looked for", "red")

    def _tell(self, report: ReportedFinding) -> None:
        """What is confirmed is told at once: the other checks may take long."""
        code, cause = CODES[report.finding.code], report.diagnosis
        said = cause.sentence if cause else report.finding.message.partition("\n")[0]
        told = f"{self._now} {code.code} {code.title}{': ' if said else ''}{said}"
        self._line(reading.shortened(told), "red")

    @property
    def _now(self) -> str:
        return f"[{time.monotonic() - self._started:5.1f} s]"

    def _finish(self, event: Finished) -> None:
        self.close()
        verdict = harmless(written(event.verdict, self.where))
        self._rule(text.title(verdict).strip(), "bold")
        for line in text.body(verdict):
            self._line(line, style=_style(line))
        style = "bold green" if event.verdict.exit is Exit.CONFORMS else "bold red"
        self._rule(reading.summary(verdict), style)
        if not verdict.fails and (assumed := reading.assumption(verdict)) is not None:
            self._line(assumed, style="bold")

    def _rule(self, words: str, style: str) -> None:
        """Words in a rule; below one where the terminal is too narrow: nothing is cut off."""
        fits = len(words) + 6 <= self.console.width
        self.console.print(Rule(Text(words) if fits else "", style=style))
        if not fits:
            self._line(words, style)

    def _line(self, line: str, style: str | None = None) -> None:
        line = escape.line(line)
        self.console.print(
            line, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True
        )


def _style(line: str) -> str | None:
    if not line.startswith("- AGV"):
        return None
    return "bold yellow" if line.endswith("no failure]") else "bold red"
