"""A verdict document as plain lines; the terminal only adds colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggverify.report import escape, reading
from aggverify.report.model import Check, Document, Finding, Verdict, harmless

WIDTH = 80


def render(document: Document) -> str:
    """Every verdict as the terminal shows it, and the consequence in words."""
    safe = harmless(document)
    lines = [line for verdict in safe.verdicts for line in (*verdict_lines(verdict), "")]
    lines += safe.error.split("\n") if safe.error else []
    return "\n".join([*lines, reading.headline(safe)]) + "\n"


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """One verdict between two rules."""
    yield title(verdict).center(WIDTH, "─")
    yield from body(verdict)
    yield f" {reading.summary(verdict)} ".center(WIDTH, "─")
    if not verdict.fails:
        yield from filter(None, [reading.assumption(verdict)])


def title(verdict: Verdict) -> str:
    """What the rule above a verdict says."""
    return f" {verdict.target} · {verdict.mode_name} "


def findings(verdict: Verdict, *, in_suite: bool = False) -> Iterator[str]:
    """Who was verified, and every cause. ``in_suite``: what to do about it is done in a test."""
    yield from _labelled(reading.header(verdict))
    for n, cause in enumerate(verdict.causes, 1):
        yield ""
        yield from _cause(cause, n, in_suite)


def body(verdict: Verdict) -> Iterator[str]:
    """Header, findings and inventory; where nothing else was run, the finding alone."""
    yield from findings(verdict)
    if verdict.fails_at_once or verdict.unjudged_for:
        return
    yield ""
    for check in verdict.checks:
        yield _check(check)
    yield from _labelled(reading.inventory(verdict))


def _cause(cause: Sequence[Finding], number: int, in_suite: bool) -> Iterator[str]:
    """One numbered root cause: its first case, and every check it breaks."""
    first, *others = cause
    yield f"{number}. Case {first.id}"
    yield f"- {first.code} {first.title}    [{reading.tag(first)}]"
    for other in others:
        yield f"- {other.code} {other.title}    [{reading.tag(other)}]  case {other.id}"
    shown = [*reading.facts(first)]
    explained = reading.explanation(first, in_suite=in_suite)
    shown += [f"{label.lower()}: {what}" for label, what in explained]
    yield from (f"    {line}" for line in (*shown, *_trace(first)))
    yield f"Reproduce:  {reading.replay(first)}"
    yield f"Explain:    aggverify explain {' '.join(dict.fromkeys(f.code for f in cause))}"


def _trace(finding: Finding) -> list[str]:
    lines = reading.trace(finding)
    return ["", *lines] if lines else []


def replay_lines(
    case: str,
    before: str,
    finding: Finding | None,
    unrun: str | None = None,
    declined: str | None = None,
) -> Iterator[str]:
    """FIXED, FAILED, HAZARD, REFUSED or ERROR, and what is left of the finding.

    ``before``: the code it was stored with; ``unrun``, ``declined``: why nothing can be said.
    """
    if declined is not None:
        yield f"REFUSED case {case}: the reducer refuses {escape.line(declined)} (it was {before})"
        return
    if unrun is not None:
        yield f"ERROR   case {case}: neither fixed nor failed (it was {before})"
        yield from (f"    {line}" for line in escape.clean(unrun).rstrip().split("\n"))
        return
    if finding is None:
        yield f"FIXED   case {case}: {before}"
        return
    other = "" if before.startswith(finding.code) else f" (was {before})"
    word = "FAILED" if finding.fails else "HAZARD"
    yield f"{word}  case {case}: {finding.code} {finding.title}{other}"
    yield from (f"    {line}" for line in (*reading.facts(finding), *_trace(finding)))


def _check(check: Check) -> str:
    state = reading.state(check)
    cases = f"{check.cases:5} cases" if check.cases else " " * 11
    return f"{check.tests:4}{check.name:40}{cases}   {state}"


def _labelled(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Two columns."""
    return (f"{label:11} {text}" for label, text in pairs)
