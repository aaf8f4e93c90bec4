"""A document and its verdicts in one sentence each: the consequence, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from aggverify.codes.state import Standing, State
from aggverify.files import split
from aggverify.model import Accepted, CheckRecord, Document, FindingRecord, Power, Verdict
from aggverify.report.formatting import counted
from aggverify.report.view_model.finding import consequence, shortened

FEW = 2
"""Assumptions that have a line each."""
AT_ONCE = "the reducer does not get through the simplest step"
RECORDED = "recorded"
"""The convention of a verdict on a training run's own records."""


def every_cause(document: Document) -> list[tuple[Verdict, list[FindingRecord]]]:
    """Verdict and findings of every cause: those that fail first, then those that are high."""
    every = [(verdict, found) for verdict in document.verdicts for found in verdict.causes]
    return sorted(every, key=lambda pair: (not pair[1][0].fails, pair[1][0].severity != "high"))


def headline(document: Document) -> str:
    """Return the consequence in words: what happens to a training run that takes this reducer."""
    every = [cause for cause in every_cause(document) if cause[1][0].fails]
    if document.error:
        return "Could not judge"
    if every:
        verdict, (first, *_) = every[0]
        more = f" ({counted(len(every) - 1, 'more finding')})" if len(every) > 1 else ""
        cut = f"; incomplete: {document.incomplete}" if document.incomplete else ""
        if first.call is not None:
            why = shortened(first.message.split("\n")[0])
            return f"{AT_ONCE[:1].upper()}{AT_ONCE[1:]}: {why}{more}{cut}"
        listed = refusals(document.verdicts)
        return f"This reducer {consequence(first, verdict)}{more}{listed}{cut}"
    if document.incomplete and document.verdicts:
        return incomplete(document.incomplete, document.verdicts)
    if not document.verdicts or any(not v.executed for v in document.verdicts):
        return "Nothing was tested"
    left = [c for v in document.verdicts for c in v.not_judged]
    if left:
        return f"Could not judge {_names(left)}"
    if document.baseline and (words := baseline_words(document)):
        return words
    if document.unmatched:
        return f"Nothing was found that --accept {', '.join(document.unmatched)} is for"
    hazards = _shown(document.verdicts, titles=True)
    open_ones = sorted(document.verdicts, key=lambda v: not v.engine_in_question)
    assumed = next(filter(None, map(assumption, open_ones)), "")
    if open_ones[0].engine_in_question:
        return f"Which engine? {assumed}{refusals(document.verdicts)}{hazards}"
    assumed = f"; {assumed}" if assumed else ""
    modes = ", ".join(v.mode_name for v in document.verdicts)
    passed = sum(c.state is State.OK for v in document.verdicts for c in v.checks)
    warnings = sum(len(v.loud) for v in document.verdicts)
    return (
        f"Conforms: {modes}{refusals(document.verdicts)}, {counted(passed, 'check')} passed"
        f"{hazards}, {counted(warnings, 'warning')}{assumed}"
    )


def baseline_words(document: Document) -> str | None:
    """Return what keeps a baseline from being taken as it is; None for nothing."""
    expired = [one for one in document.baseline if one.state is Standing.EXPIRED]
    if expired:
        listed = "; ".join(f"{one.what} since {one.expires} ({one.reason})" for one in expired)
        return f"No longer accepted: {listed}"
    if not document.stale:
        return None
    listed = "; ".join(map(_out_of_date, document.stale))
    return f"The baseline is out of date: {listed}; take it out, or --baseline-write does"


def _out_of_date(entry: Accepted) -> str:
    words = f" ({shortened(entry.words)})" if entry.words else ""
    return f"{entry.what}: {entry.state}{words}"


def refusals(verdicts: Sequence[Verdict]) -> str:
    """Return what is not judged because the reducer declines it, in its own words.

    Empty for nothing.
    """
    listed = dict.fromkeys(f"{r.what}: '{shortened(r.words)}'" for v in verdicts for r in v.refused)
    lost = sum(v.layouts_refused for v in verdicts)
    judged = f" ({lost} layouts refused, {sum(v.layouts_left for v in verdicts)} judged)"
    return f"; refuses {', '.join(listed)}{judged * bool(lost)}" if listed else ""


def incomplete(why: str, verdicts: Sequence[Verdict]) -> str:
    """How far a command came that was stopped without a finding that fails."""
    planned = [c for v in verdicts for c in v.checks if c.state.planned]
    judged = sum(c.state.judged for c in planned)
    return (
        f"Incomplete ({why}): no finding so far{_shown(verdicts)}, "
        f"{judged} of {counted(len(planned), 'check')} judged"
    )


def _shown(verdicts: Sequence[Verdict], *, titles: bool = False) -> str:
    """Causes that are shown and do not fail, by their codes or also their titles."""
    every = [cause[0] for v in verdicts for cause in v.causes if not cause[0].fails]
    found = ""
    for what, waived in (("hazard", False), ("waived finding", True)):
        mine = [f for f in every if (f.waived is not None) == waived]
        names = dict.fromkeys(f"{f.code} {f.title}" if titles else f.code for f in mine)
        found += f", {counted(len(mine), what)} ({'; '.join(names)})" if mine else ""
    return found


def summary(verdict: Verdict) -> str:
    """One verdict in one line."""
    ran = [c for c in verdict.checks if c.cases]
    if verdict.fails_at_once:
        return f"{AT_ONCE}; nothing else was run"
    if verdict.fails:
        failed = counted(sum(c.state is State.FAILED for c in ran), "check")
        causes = counted(sum(cause[0].fails for cause in verdict.causes), "finding")
        cut = f"; incomplete: {verdict.incomplete}" if verdict.incomplete else ""
        cut += refusals([verdict])
        return f"{causes}{_shown([verdict])} ({failed} of {len(ran)} failed){cut}"
    if verdict.incomplete:
        return incomplete(verdict.incomplete, [verdict])
    if not verdict.executed:
        return "nothing was tested"
    if verdict.unjudged_for:
        return f"could not judge: {verdict.unjudged_for}"
    if verdict.not_judged:
        return f"could not judge {_names(verdict.not_judged)}"
    what = verdict.oracle or verdict.mode or "the same step scalar in every layout (no known mode)"
    what = "every call is refused or answered as it must be" if verdict.only_called else what
    what += "" if verdict.linear else " (one value and gradient in every layout)"
    if verdict.engine_in_question:
        what = f"which engine? {what} under {verdict.engine}"
        return f"{what}{refusals([verdict])}{_shown([verdict])}"
    rest = f"0 findings{_shown([verdict])}, {counted(len(verdict.loud), 'warning')}"
    passed = counted(sum(c.state is State.OK for c in ran), "check")
    return f"conforms: {what}{refusals([verdict])}, {passed} passed, {rest}"


def result(verdict: Verdict) -> tuple[str, str]:
    """PASS, FAIL, INCOMPLETE or NOT JUDGED, and what that means."""
    if verdict.fails:
        causes = counted(sum(cause[0].fails for cause in verdict.causes), "finding")
        return "FAIL", causes + (f", {verdict.incomplete}" if verdict.incomplete else "")
    if verdict.incomplete:
        planned = [c for c in verdict.checks if c.state.planned]
        judged = sum(c.state.judged for c in planned)
        how_far = f"no finding so far, {judged} of {counted(len(planned), 'check')} judged"
        return "INCOMPLETE", f"{verdict.incomplete}: {how_far}"
    if not verdict.executed:
        return "NOT JUDGED", "nothing was tested"
    if verdict.unjudged_for:
        return "NOT JUDGED", verdict.unjudged_for
    if verdict.not_judged:
        return "NOT JUDGED", _names(verdict.not_judged)
    if verdict.only_called:
        words = "every call is refused or answered as it must be"
    elif verdict.convention == RECORDED and (shown := _established(verdict)):
        words = shown
    elif not verdict.linear:
        known = "" if verdict.mode == "nonlinear" else f"{verdict.mode}'s on one rank, and "
        words = f"value and gradient are {known}the same in every layout tried"
    elif mode := verdict.oracle or verdict.mode:
        words = f"every token has its {mode} weight in every layout tried"
    else:
        words = "the step scalar is the same in every layout tried (no known mode)"
    if verdict.engine_in_question:
        return "NOT JUDGED", f"which engine? Under {verdict.engine}, {words}"
    if waived := sum(cause[0].waived is not None for cause in verdict.causes):
        words += f", but for {counted(waived, 'waived finding')}"
    return "PASS", words


def _established(verdict: Verdict) -> str:
    return "; ".join(check.established for check in verdict.checks if check.established)


def _names(checks: Sequence[CheckRecord]) -> str:
    more = f" and {counted(len(checks) - 3, 'more check')}" if len(checks) > 3 else ""
    return ", ".join(check.name for check in checks[:3]) + more


def assumption(verdict: Verdict) -> str | None:
    """Return the engine that was assumed, and how updates change if the trainer has another one.

    None where the engine was given.
    """
    if not verdict.other_engines:
        return None
    other = verdict.other_engines[0]
    mine = verdict.engine + "".join(f" --without {feature}" for feature in verdict.narrowed)
    words = ("larger", "smaller") if verdict.fails else ("too large", "too small")
    text = (
        f"assumed --engine {mine}: your trainer {verdict.engine_does}. If it {other.does} "
        f"(--engine {other.name}), updates are {_times(other.factor, *words)}"
    )
    if verdict.engine_in_question and not verdict.fails:
        text += f". Which does your trainer do? --engine {mine} or --engine {other.name}"
    return text


def assumptions(verdict: Verdict) -> list[str]:
    """Return what the adapter takes for granted of the call; where that is much, by name."""
    if len(verdict.assumed) <= FEW:
        return [f"assumed {each}" for each in assumed(verdict)]
    names = ", ".join(a.name for a in verdict.assumed)
    return [f"assumed {len(verdict.assumed)} arguments of {_file(verdict)}: {names} (-v)"]


def assumed(verdict: Verdict) -> Iterator[str]:
    """Each with its line, which a person deletes once it is confirmed."""
    for a in verdict.assumed:
        line = "" if a.line is None else f" line {a.line}"
        yield f"{a.name} = {a.reading} ({_file(verdict)}{line})"


def _file(verdict: Verdict) -> str:
    return PurePath(split(verdict.target)[0]).name


def _times(factor: Sequence[Power], up: str, down: str) -> str:
    above, below = (
        " x ".join(p.size for p in factor for _ in range(sign * p.power)) for sign in (1, -1)
    )
    if above and below:
        return f"{above} / ({below}) times those"
    return f"{above} times {up}" if above else f"{below} times {down}"
