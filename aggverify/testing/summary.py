"""What all tests of a session report together, as lines for pytest's summary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from aggverify import __version__, codec, escape
from aggverify.codes.state import State
from aggverify.files import write_inside
from aggverify.model import SCHEMA, CheckRecord, Document, FindingRecord, Verdict, harmless
from aggverify.report import formats, view_model
from aggverify.report.document import environment
from aggverify.testing import settings

Tests = defaultdict[tuple[str, bool], list[str]]
"""Names by the finding they show, and whether it is a failure there."""
Left = tuple[str, Sequence[Any], Sequence[tuple[str, bool]], str | None]
"""A test's name, verdicts as plain data, ids of its findings and whether they fail, its error."""
SHOWN_LABELS = ("executed", "tried", "slow", "margin", "warning", "established", "note")
"""Of the inventory; pytest itself reports what it skipped."""
MOST_NAMES = 3
Key = tuple[str, str, str, str, str, float | None]
"""Target, function, convention, engine, mode and divisor."""


def summary_lines(config: pytest.Config, left: Sequence[Left]) -> Iterator[str]:
    """Yield a block for each reducer and mode; what could not be judged; the reports, written."""
    every: list[Any] = []
    tests = Tests(list)
    for name, plain, findings, _ in left:
        every += [data for data in plain if data not in every]  # several workers read one run
        for which, fails in findings:
            if name not in tests[which, fails]:  # a test may be run again
                tests[which, fails].append(name)
    verdicts = [codec.read(Verdict, data, "a verdict") for data in every]
    document = _document(verdicts)
    for verdict in harmless(document).verdicts:
        yield from _block(verdict, tests)
    yield from _errors(left)
    if not verdicts:
        return
    for each in formats.chosen(settings.formats(config)).values():
        try:
            path = write_inside(settings.report_dir(config), each.file, each.render(document))
            yield f"{each.what}: {path}"
        except Exception as error:  # what one writer lacks costs no other
            yield f"{each.what}: not written: {error}"


def _document(verdicts: Sequence[Verdict]) -> Document:
    """One verdict for each reducer, mode and engine, as ``aggverify check`` would have it."""
    groups: defaultdict[Key, list[Verdict]] = defaultdict(list)
    for v in verdicts:
        key = (v.target, v.function, v.convention, v.engine, v.mode_name, v.divisor)
        groups[key].append(v)
    joined = tuple(map(_joined, groups.values()))
    incomplete = next((v.incomplete for v in verdicts if v.incomplete), None)
    conforms = all(v.conforms for v in verdicts)
    code = 1 if any(v.fails for v in verdicts) else 0 if conforms else 2
    return Document(SCHEMA, __version__, environment(), code, None, incomplete, joined, (), ())


def _joined(parts: Sequence[Verdict]) -> Verdict:
    """Return the largest run with what others add: of expected failures, or with other options.

    Of a check what fails goes first, then what is not judged. A finding that one test expects may
    fail another: the one that fails is kept.
    """
    if len(parts) == 1:
        return parts[0]
    ordered = sorted(parts, key=lambda verdict: -len(verdict.checks))
    checks: dict[str, CheckRecord] = {}
    for record in (record for part in ordered for record in part.checks):
        if record.name not in checks or _urgency(record) > _urgency(checks[record.name]):
            checks[record.name] = record
    findings: dict[str, FindingRecord] = {}
    for finding in (finding for part in ordered for finding in part.findings):
        if finding.id not in findings or finding.fails:
            findings[finding.id] = finding
    return replace(
        ordered[0],
        checks=tuple(checks.values()),
        findings=tuple(_by_cause(findings.values())),
        executed=sum(part.executed for part in parts),
        worlds=dict(sum((Counter(part.worlds) for part in parts), Counter())),
        incomplete=next((part.incomplete for part in ordered if part.incomplete), None),
        notes=tuple(dict.fromkeys(note for part in ordered for note in part.notes)),
    )


def _urgency(record: CheckRecord) -> int:
    """Return what may not be hidden by the same check of another run."""
    if record.state is State.FAILED:
        return 2
    return int(record.state is State.NOT_JUDGED and not record.spoiled)


def _by_cause(findings: Iterable[FindingRecord]) -> Iterator[FindingRecord]:
    """Yield the findings; those with one diagnosis have one cause, whichever runs made them."""
    shown: dict[object, str] = {}
    for finding in findings:
        known = finding.diagnosis is not None or finding.bugs
        cause = (finding.diagnosis, finding.bugs, finding.factor) if known else finding.id
        keys = (finding.id, finding.same_cause_as or finding.id, cause)
        leader = next((shown[key] for key in keys if key in shown), finding.id)
        shown.update(dict.fromkeys(keys, leader))
        yield replace(finding, same_cause_as=None if leader == finding.id else leader)


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


def _errors(left: Sequence[Left]) -> Iterator[str]:
    """Yield what kept tests from being judged: each reason once."""
    stopped: dict[str, list[str]] = {}
    for name, _, _, error in left:
        if error is not None:
            stopped.setdefault(error, []).append(name)
    for error, names in stopped.items():
        yield from escape.clean(error).rstrip().split("\n")
        yield f"  not judged: {_named(names)}"


def _named(tests: Sequence[str]) -> str:
    more = len(tests) - MOST_NAMES
    return ", ".join(tests[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
