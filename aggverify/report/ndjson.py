"""One JSON object a line: while a command runs, or what of that a stored document still knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aggverify.report import codec, reading
from aggverify.report.escape import json_text
from aggverify.report.model import Check, Document, Finding, Verdict


def line(event: str, **values: Any) -> str:
    """One event; no text can end the line."""
    return json_text({"event": event, **values}) + "\n"


def subject(verdict: Verdict) -> str:
    """Who is verified from here on."""
    names = ("target", "function", "convention", "engine", "seed")
    return line("subject", **{n: getattr(verdict, n) for n in names}, mode=verdict.mode_name)


def check(done: Check) -> str:
    """A check is done, or is not run."""
    return line("check_finished", check=codec.plain(done))


def finding(found: Finding) -> str:
    """A confirmed, shrunk and diagnosed finding, as it stands in the verdict document."""
    return line("finding", finding=codec.plain(found))


def verdict(done: Verdict) -> str:
    """One subject's verdict is complete."""
    return line(
        "verdict",
        target=done.target,
        function=done.function,
        mode=done.mode_name,
        conforms=done.conforms,
        findings=len(done.findings),
        executed=done.executed,
        incomplete=None if done.incomplete is None else str(done.incomplete),
        summary=reading.summary(done),
    )


def finished(document: Document) -> str:
    """The last line of a command."""
    return line("finished", exit=document.exit, error=document.error)


def render(document: Document) -> str:
    """Of a document that was stored: the same lines, but for progress."""
    return "".join(_lines(document))


def _lines(document: Document) -> Iterator[str]:
    for each in document.verdicts:
        yield subject(each)
        yield from map(check, each.checks)
        yield from map(finding, each.findings)
        yield verdict(each)
    yield finished(document)
