"""What all tests of a session say together, as lines for pytest's summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from aggverify.files import write_inside
from aggverify.report import codec, formats, reading
from aggverify.report.model import Finding, Verdict, harmless
from aggverify.testing import merging, settings


def told(config: pytest.Config, found: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """A block for each reducer and mode; the reports, written where they belong.

    ``found``: the name of every test, and the verdict of its check as plain data.
    """
    verdicts = [codec.read(Verdict, plain, "a verdict") for _, plain in found]
    tests = {
        finding.id: name
        for (name, _), verdict in zip(found, verdicts, strict=True)
        for finding in verdict.findings
    }
    document = merging.document(verdicts)
    for verdict in harmless(document).verdicts:
        yield from _block(verdict, tests)
    for each in formats.chosen(settings.formats(config)).values():
        try:
            path = write_inside(settings.report_dir(config), each.file, each.render(document))
            yield f"{each.what}: {path}"
        except Exception as error:  # what one writer lacks costs no other
            yield f"{each.what}: not written: {error}"


def _block(verdict: Verdict, tests: Mapping[str, str]) -> Iterator[str]:
    yield f"{verdict.target} · {verdict.mode_name} · engine {verdict.engine}"
    for cause in verdict.causes:
        yield from (f"  {line}" for line in _cause(cause, tests))
    yield from (
        f"  {label:9} {words}"
        for label, words in reading.inventory(verdict)
        if label in ("executed", "margin", "warning", "established")
    )
    yield f"  {reading.summary(verdict)}"


def _cause(cause: Sequence[Finding], tests: Mapping[str, str]) -> Iterator[str]:
    """What is computed instead, once, and every test that shows it."""
    first = cause[0]
    yield f"{first.code} {first.title} [{reading.tag(first)}]"
    yield from (f"  {label.lower()}: {what}" for label, what in reading.explanation(first))
    yield from (f"  broke {tests[f.id]} (case {f.id})" for f in cause if f.id in tests)
