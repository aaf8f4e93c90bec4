"""A verdict document as the terminal shows it: what one acts on, and with ``-v`` all the rest."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aggverify import escape
from aggverify.model import CheckRecord, Document, FindingRecord, Verdict, harmless
from aggverify.report import view_model
from aggverify.report.formatting import counted

NARROWEST, WIDTH = 60, 100
MOST = 30
"""Lines of one root cause; only ``-v`` shows a trace that would need more."""
_LOUD = ("warning", "note", "refused", "waived")
"""Of the inventory, what the short screen shows as well."""


@dataclass(frozen=True, slots=True)
class Style:
    """How much is shown, and how wide."""

    width: int = WIDTH
    verbose: bool = False
    quiet: bool = False
    """Findings and the last line only."""
    in_suite: bool = False
    """A finding is accepted in a test, not by an option."""

    def wrapped(self, line: str, indent: int | None = None) -> list[str]:
        """At words; later lines stand under the text, ``indent`` from the left."""
        width = max(self.width, NARROWEST)
        if len(line) <= width:
            return [line]
        own = len(line) - len(line.lstrip())
        hang = " " * (own + 2 if indent is None else indent)
        return textwrap.wrap(
            line.lstrip(),
            width,
            initial_indent=line[:own],
            subsequent_indent=hang,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def labelled(self, label: str, text: str, column: int = 15) -> list[str]:
        """Return a label and its text."""
        lead = f"  {label:{column - 2}}"
        lead += " " * lead.endswith(label)
        rest = self.wrapped(" " * len(lead) + text, len(lead))
        return [lead + rest[0][len(lead) :], *rest[1:]]

    def command(self, label: str, words: str) -> list[str]:
        """Return a command; on several lines it can still be pasted."""
        lines = replace(self, width=self.width - 2).labelled(label, words)
        return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


USUAL, IN_SUITE = Style(), Style(in_suite=True)


def render(document: Document) -> str:
    """Every verdict with all of its lines, and the consequence in words."""
    safe, style = harmless(document), Style(verbose=True)
    lines = [line for verdict in safe.verdicts for line in (*verdict_lines(verdict, style), "")]
    lines += safe.error.split("\n") if safe.error else []
    return "\n".join([*lines, *style.wrapped(view_model.headline(safe))]) + "\n"


def verdict_lines(
    verdict: Verdict, style: Style = USUAL, seconds: float | None = None
) -> Iterator[str]:
    """One verdict: its findings, what was done, the result. Its texts are harmless already."""
    clean = verdict.conforms and not verdict.causes
    if not style.quiet:
        yield from style.wrapped(title(verdict), 4)
    for cause in verdict.causes:
        lines = _cause(cause, style)
        yield from (*lines, "") if style.quiet else ("", *lines)
    if clean:
        yield from _result(verdict, style, seconds)
    elif not style.quiet:
        yield ""
    if verdict.fails_at_once and style.verbose:
        yield from _listed(verdict, style)
    elif not (style.quiet or verdict.fails_at_once or verdict.unjudged_for):
        yield from _done(verdict, style, clean)
    if not clean:
        yield from _result(verdict, style, seconds)


def title(verdict: Verdict) -> str:
    """Return who was verified, and as what."""
    name = verdict.target if ":" in verdict.target else f"{verdict.target}:{verdict.function}"
    if verdict.only_called:
        return f"{name}   {verdict.convention}"
    mode = verdict.oracle or verdict.mode or "no known mode"
    mode += " (identified)" * verdict.identified
    mode += f" (divisor {verdict.divisor:g})" if verdict.divisor is not None else ""
    engine = verdict.engine
    if verdict.engine_assumed:
        engine += " (assumed)"
    elif verdict.engine_is_default:
        engine += f" ({verdict.convention}'s default)"
    against = f" · against {verdict.against}" if verdict.against else ""
    return f"{name}   {verdict.convention} · {mode} · engine {engine}{against}"


def findings(verdict: Verdict, style: Style = IN_SUITE) -> Iterator[str]:
    """Who was verified, and every cause: what a test shows that fails."""
    yield from style.wrapped(title(verdict), 4)
    for cause in verdict.causes:
        yield from ("", *_cause(cause, style))


def _cause(cause: Sequence[FindingRecord], style: Style) -> list[str]:
    """One root cause: its smallest case, what is computed, and the other codes of it."""
    first, *others = cause
    word = "WAIVED" if first.waived is not None else "FAIL" if first.fails else "HAZARD"
    head = style.wrapped(f"{word}  {first.code}  {first.title}", len(word) + 10)
    for fact in view_model.facts(first):
        label, colon, text = fact.partition(": ")
        if colon and label == "case":
            head += style.labelled(label, text)
        else:
            head += style.wrapped(f"  {fact}", 4)
    tail: list[str] = []
    explained = view_model.explanation(first, in_suite=style.in_suite, brief=not style.verbose)
    accept = [pair for pair in explained if pair[0] == "Accept"]
    for label, text in explained[: len(explained) - len(accept)]:
        tail += style.labelled(label.lower(), text)
    if others:
        cases: dict[str, list[str]] = {}
        short = len(others) > 2
        for f in others:
            cases.setdefault(f.code if short else f"{f.code} {f.title}", []).append(f.id)
        names = [f"{name} ({', '.join(ids)})" for name, ids in cases.items()]
        tail += style.labelled("same cause", ", ".join(names))
    tail += style.command("reproduce", view_model.replay(first))
    for label, text in accept:
        tail += style.labelled(label.lower(), text)
    return [*head, *_trace(first, style, MOST - len(head) - len(tail)), *tail]


def _trace(finding: FindingRecord, style: Style, room: int) -> list[str]:
    raw = (f"    {line}".rstrip() for line in view_model.trace(finding))
    lines = [line for each in raw for line in style.wrapped(each, 8)]
    if style.verbose or style.in_suite or len(lines) <= room:
        return lines
    more = len(lines) - room + 1
    return [*lines[: room - 1], f"    … {counted(more, 'more line')}: -v shows all"]


def _result(verdict: Verdict, style: Style, seconds: float | None) -> Iterator[str]:
    """PASS or FAIL, in how many seconds, and how to see more."""
    word, words = view_model.result(verdict)
    took = "" if seconds is None else f"{seconds:.1f} s"
    if not verdict.fails:
        line = f"{word}  {words}"
        gap = style.width - len(line) - len(took)
        if took and gap > 1:
            line, took = f"{line}{' ' * gap}{took}", ""
        yield from style.wrapped(f"{line}  {took}".rstrip(), len(word) + 2)
        return
    codes = " ".join(dict.fromkeys(cause[0].code for cause in verdict.causes))
    more = [] if verdict.fails_at_once or style.verbose else ["all checks: -v"]
    more = ["no step was passed, nothing else was run"] if verdict.fails_at_once else more
    timed = f" in {took}" if took else ""
    line = " · ".join([f"{word}  {words}{timed}", f"aggverify explain {codes}", *more])
    yield from style.wrapped(line, len(word) + 2)


def _done(verdict: Verdict, style: Style, clean: bool) -> Iterator[str]:
    """Yield what was run and what was not.

    With ``-v`` every check and all that is known of the run.
    """
    yield from style.wrapped(("  " if clean else "") + view_model.counts(verdict), 4)
    if style.verbose:
        yield ""
        for check in verdict.checks:
            yield from style.wrapped(f"  {_check(check)}", min(62, style.width // 2))
        yield ""
        yield from _listed(verdict, style)
        return
    if clean:
        for label, text in view_model.reach(verdict):
            yield from style.labelled(label, text)
    inventory = view_model.inventory(verdict)
    for label in _LOUD:
        for text in (text for other, text in inventory if other == label):
            warns = label == "warning"
            yield from style.wrapped(f"! {text}", 2) if warns else style.labelled(label, text)
    for reason, names in _unjudged(verdict).items():
        yield from style.labelled("not judged", f"{', '.join(names)}: {reason}")
    engine = view_model.assumption(verdict)
    for assumed in (*view_model.assumptions(verdict), *([engine] if engine else [])):
        yield from style.wrapped(f"! {assumed}", 2)
    if clean:
        yield "Details: -v · page: --report html"


def _listed(verdict: Verdict, style: Style) -> Iterator[str]:
    """All that is known of a run, label by label."""
    for label, text in (*view_model.header(verdict), *view_model.inventory(verdict)):
        yield from style.labelled(label, text)


def _unjudged(verdict: Verdict) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for check in verdict.not_judged:
        found.setdefault(check.reason or "no reason is known", []).append(check.name)
    return found


def coloured(line: str) -> str | None:
    """Return the style of a line that reports how something ended."""
    word = line.split("  ", 1)[0]
    if word in ("HAZARD", "WAIVED", "NOT JUDGED", "INCOMPLETE"):
        return "bold yellow"
    return {"FAIL": "bold red", "PASS": "bold green"}.get(word)


def replay_lines(
    case: str,
    before: str,
    finding: FindingRecord | None,
    unrun: str | None = None,
    declined: str | None = None,
) -> Iterator[str]:
    """Yield FIXED, FAILED, HAZARD, REFUSED or ERROR, and what is left of the finding.

    ``before``: the code it was stored with; ``unrun``, ``declined``: why nothing can be judged.
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
    yield from (f"    {line}" for line in (*view_model.facts(finding), *view_model.trace(finding)))


def _check(check: CheckRecord) -> str:
    cases = f"{check.cases:5} cases" if check.cases else " " * 11
    return f"{check.tests:4}{check.name:40}{cases}   {view_model.state(check)}"
