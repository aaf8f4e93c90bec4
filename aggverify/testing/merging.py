"""Verdicts of one check each, from every test and worker, as one verdict for each subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

from msgspec.structs import replace

from aggverify import __version__
from aggverify.codes import CODES
from aggverify.codes.state import State
from aggverify.model import (
    SCHEMA,
    CheckRecord,
    Covered,
    Decided,
    Document,
    FindingRecord,
    Margin,
    ReportedLoss,
    SizeMargin,
    Tried,
    Verdict,
    Warned,
)
from aggverify.report.document import environment
from aggverify.run.outcome import branch_coverage, extent
from aggverify.steps import case_tags

Key = tuple[str, str, str, str, str, float | None]


def document(verdicts: Iterable[Verdict]) -> Document:
    """One verdict for each reducer, mode and engine, as ``aggverify check`` would have it."""
    groups: dict[Key, list[Verdict]] = {}
    for v in verdicts:
        key = (v.target, v.function, v.convention, v.engine, v.mode_name, v.divisor)
        groups.setdefault(key, []).append(v)
    merged = tuple(map(_merged, groups.values()))
    conforms = all(v.conforms for v in merged)
    incomplete = next((v.incomplete for v in merged if v.incomplete), None)
    code = 1 if any(v.fails for v in merged) else 0 if conforms else 2
    return Document(SCHEMA, __version__, environment(), code, None, incomplete, merged, (), ())


def _merged(parts: Sequence[Verdict]) -> Verdict:
    worlds: Counter[str] = Counter()
    for part in parts:
        worlds.update(part.worlds)
    return replace(
        parts[0],
        checks=tuple(_each_check(parts)),
        findings=tuple(_one_cause_each([f for part in parts for f in part.findings])),
        executed=sum(part.executed for part in parts),
        incomplete=next((part.incomplete for part in parts if part.incomplete), None),
        worlds=dict(sorted(worlds.items(), key=lambda pair: int(pair[0]))),
        margins=_margins(parts),
        cuts=tuple(cut for part in parts for cut in part.cuts),
        tried=widest([part.tried for part in parts]),
        covered=_covered(parts),
        warnings=tuple(_warnings(parts)),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _each_check(parts: Sequence[Verdict]) -> Iterable[CheckRecord]:
    """Return every check once; of several tests that run it, one in which it failed."""
    found: dict[str, CheckRecord] = {}
    for check in (check for part in parts for check in part.checks):
        if check.name not in found or check.state is State.FAILED:
            found[check.name] = check
    return found.values()


def _one_cause_each(findings: Sequence[FindingRecord]) -> Iterable[FindingRecord]:
    """Every finding once; those with one diagnosis have one cause, whichever tests made them."""
    first: dict[tuple[object, ...], str] = {}
    # A finding that one test expects may fail another: the failing one comes last, and is kept.
    ordered = sorted(findings, key=lambda finding: finding.fails)
    for finding in {finding.id: finding for finding in ordered}.values():
        if finding.diagnosis is None and not finding.bugs:
            yield finding
            continue
        cause = (finding.diagnosis, finding.bugs, finding.factor)
        shown = first.setdefault(cause, finding.id)
        yield replace(finding, same_cause_as=None if shown == finding.id else shown)


def widest(parts: Sequence[Tried]) -> Tried:
    """Return the largest of everything in any of them, and each dtype on all its layouts."""
    values = {name: max(getattr(part, name) for part in parts) for name in extent.NUMBERS}
    kinds: dict[str, set[str]] = {}
    for dtype, on in (pair for part in parts for pair in part.dtypes.items()):
        kinds.setdefault(dtype, set()).update(on)
    return Tried(**values, dtypes={dtype: tuple(sorted(on)) for dtype, on in sorted(kinds.items())})


def _covered(parts: Sequence[Verdict]) -> Covered:
    """Return what ran in any of them."""
    lines: dict[str, set[int]] = {}
    ways: dict[Decided, tuple[set[str], set[str]]] = {}
    for own in (part.covered for part in parts):
        for kind, ran in own.lines.items():
            lines.setdefault(kind, set()).update(ran)
        for each in own.conditions:
            true, false = ways.setdefault(replace(each, true=(), false=()), (set(), set()))
            true.update(each.true)
            false.update(each.false)
    functions = dict.fromkeys(each for part in parts for each in part.covered.functions)
    return Covered(
        tuple(functions),
        {kind: tuple(sorted(ran)) for kind, ran in lines.items()},
        tuple(replace(c, true=_kinds(t), false=_kinds(f)) for c, (t, f) in ways.items()),
    )


def _kinds(names: Iterable[str]) -> tuple[str, ...]:
    return case_tags.decode(case_tags.encode(names))


def _warnings_of_lines(of: Covered) -> Mapping[str, str]:
    """Return the warnings of lines and conditions that all of it deserves, by code."""
    seen = branch_coverage.BranchCoverage()
    for kind, ran in of.lines.items():
        for line in ran:
            seen.lines[line] = seen.lines.get(line, 0) | case_tags.encode([kind])
    for n, each in enumerate(of.conditions):
        for outcome, names in ((2 * n, each.false), (2 * n + 1, each.true)):
            if names:
                seen.outcomes[outcome] = case_tags.encode(names)
    return dict(seen.weaknesses(of.functions, of.conditions))


def _margins(parts: Sequence[Verdict]) -> tuple[Margin, ...]:
    found: dict[str, list[Margin]] = {}
    for part in parts:
        for margin in part.margins:
            found.setdefault(margin.dtype, []).append(margin)
    return tuple(reduce(_worse_of, margins) for _, margins in sorted(found.items()))


def _worse_of(one: Margin, other: Margin) -> Margin:
    """Return the larger error, and the smaller factor that one of both would have caught."""
    a, b = one.reported_loss, other.reported_loss
    return Margin(
        one.dtype,
        max(one.worst_error_over_bound, other.worst_error_over_bound),
        min(one.smallest_caught, other.smallest_caught),
        ReportedLoss(
            min(a.smallest_caught_alone, b.smallest_caught_alone),
            min(a.smallest_caught_dense, b.smallest_caught_dense),
            a.dense_steps + b.dense_steps,
            a.vacuous_steps + b.vacuous_steps,
        ),
        tuple(_by_size(one, other)),
    )


def _by_size(one: Margin, other: Margin) -> Iterator[SizeMargin]:
    """Of every size the worst seen in either."""
    shares = sorted((s.tokens, s.worst_error_over_bound) for m in (one, other) for s in m.by_size)
    worst = dict(shares)  # sorted, so that of each size the worst comes last and is kept
    return (SizeMargin(tokens, share) for tokens, share in worst.items())


def _warnings(parts: Sequence[Verdict]) -> Iterable[Warned]:
    """Yield a warning of absence only where every check has it, any other where one has."""
    ran = [part for part in parts if part.executed]
    found: dict[str, list[Warned]] = {}
    for part in ran:
        for warning in part.warnings:
            found.setdefault(warning.code, []).append(warning)
    never = _warnings_of_lines(_covered(parts))
    for code, given in found.items():
        if CODES[code].of_absence and len(given) < len(ran):
            continue
        details = dict.fromkeys(w.detail for w in given)
        if CODES[code].of_lines:
            details = dict.fromkeys(detail for other, detail in never.items() if other == code)
        if details:
            yield replace(given[0], detail="; ".join(details))
