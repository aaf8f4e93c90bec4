"""What all tests of a session report together, as lines for pytest's summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from aggverify import codec, escape
from aggverify.files import write_inside
from aggverify.model import FindingRecord, Verdict, harmless
from aggverify.report import formats, view_model
from aggverify.testing import merging, settings

Tests = defaultdict[tuple[str, bool], list[str]]
"""Names by the finding they show, and whether it is a failure there."""
Kept = tuple[str, Sequence[Any], str | None]
"""A test's name, the verdicts of its check as plain data, and why there is none."""
SHOWN_LABELS = ("executed", "tried", "slow", "margin", "warning", "established", "note")
"""Of the inventory; pytest itself reports what it skipped."""
MOST_NAMES = 3


def summary_lines(config: pytest.Config, kept: Sequence[Kept]) -> Iterator[str]:
    """Yield a block for each reducer and mode; what could not be judged; the reports, written."""
    verdicts, tests = [], Tests(list)
    for name, plain, _ in kept:
        for verdict in (codec.read(Verdict, data, "a verdict") for data in plain):
            verdicts.append(verdict)
            for finding in verdict.findings:
                tests[finding.id, finding.fails].append(name)
    document = merging.document(verdicts)
    for verdict in harmless(document).verdicts:
        yield from _block(verdict, tests)
    yield from _errors(kept)
    if not verdicts:
        return
    for each in formats.chosen(settings.formats(config)).values():
        try:
            path = write_inside(settings.report_dir(config), each.file, each.render(document))
            yield f"{each.what}: {path}"
        except Exception as error:  # what one writer lacks costs no other
            yield f"{each.what}: not written: {error}"


def _block(verdict: Verdict, tests: Tests) -> Iterator[str]:
    yield f"{verdict.target} · {verdict.mode_name} · engine {verdict.engine}"
    for cause in verdict.causes:
        yield from (f"  {line}" for line in _cause(cause, tests))
    if not verdict.fails_at_once:
        inventory = view_model.inventory(verdict)
        yield from (f"  {label:9} {words}" for label, words in inventory if label in SHOWN_LABELS)
    yield f"  {'  '.join(view_model.result(verdict))}"


def _cause(cause: Sequence[FindingRecord], tests: Tests) -> Iterator[str]:
    """Yield what is computed instead, once, and every test that shows it."""
    first = cause[0]
    yield f"{first.code} {first.title} [{view_model.tag(first)}]"
    explained = view_model.explanation(first, in_suite=True)
    yield from (f"  {label.lower()}: {what}" for label, what in explained)
    for finding in cause:
        for fails, did in ((True, "broke"), (False, "seen in")):
            if names := tests[finding.id, fails]:
                yield f"  {did} {_named(names)} (case {finding.id})"


def _errors(kept: Sequence[Kept]) -> Iterator[str]:
    """Yield what kept tests from being judged: each reason once."""
    stopped: dict[str, list[str]] = {}
    for name, _, error in kept:
        if error is not None:
            stopped.setdefault(error, []).append(name)
    for error, names in stopped.items():
        yield from escape.clean(error).rstrip().split("\n")
        yield f"  not judged: {_named(names)}"


def _named(tests: Sequence[str]) -> str:
    more = len(tests) - MOST_NAMES
    return ", ".join(tests[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
