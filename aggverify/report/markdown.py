"""Markdown for a step summary or a pull-request comment; never more than such a place takes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aggverify.codes.state import State
from aggverify.model import Document, FindingRecord, Verdict, harmless
from aggverify.report import view_model
from aggverify.report.formatting import counted

MARKER = "<!-- aggverify -->"
"""The first line: by it a later run finds the comment to replace."""
MAX_BYTES = 60_000
MAX_HEADLINE = 400
"""Characters: more than a line of others', as most of a headline is ours."""
_ROOM = 200
"""Bytes kept for the line that names what was left out."""
_SPECIAL = re.compile(
    r"[^\w\s,;()/+=…·×'.:-]"  # punctuation that can mean something
    r"|(?<![^\W_])_|_(?![^\W_])"  # _ next to a sign: within a word it stands for itself
    r"|:(?=\S)|(?<=www)\.",  # addresses, which become links by themselves, and :emoji:
    re.IGNORECASE,
)
_SIGNS = {
    State.FAILED: "❌",
    State.HAZARD: "⚡",
    State.OK: "✅",
    State.WAIVED: "☑️",
    State.REFUSED: "🚫",
    State.NOT_JUDGED: "⚠️",
    State.NOT_CLAIMED: "➖",
    State.LEFT_OUT: "➖",
}


def render(document: Document) -> str:
    """Return the report; findings that do not fit are left out whole, and counted."""
    document = harmless(document)
    found = [_finding(verdict, cause) for verdict, cause in view_model.every_cause(document)]
    head = [MARKER, f"### {'✅' if document.exit == 0 else '❌'} {_headline(document)}"]
    if document.error:
        head.append(block([view_model.shortened(line) for line in document.error.split("\n")]))
    if document.verdicts:
        head.append("\n".join(_table(document.verdicts)))
    inventory = [_inventory(verdict) for verdict in document.verdicts]
    return fitted(head, found, inventory)


def _headline(document: Document) -> str:
    return plain(view_model.headline(document), MAX_HEADLINE)


def fitted(head: Sequence[str], found: Sequence[str], inventory: Sequence[str]) -> str:
    """Head, findings and inventories within MAX_BYTES, in this order of importance."""
    shown = "\n\n".join(head) + "\n"
    left = {"finding": 0, "list of checks": 0}
    for what, parts in (("finding", found), ("list of checks", inventory)):
        for part in parts:
            longer = f"{shown}\n{part}\n"
            if left[what] or len(longer.encode()) > MAX_BYTES - _ROOM:
                left[what] += 1
            else:
                shown = longer
    missing = [counted(n, what) for what, n in left.items() if n]
    if missing:
        shown += f"\n{' and '.join(missing)} left out here for lack of room.\n"
    return shown


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [
        "| reducer | mode | engine | findings | checks | warnings |",
        "|---|---|---|---|---|---|",
    ]
    for v in verdicts:
        states = [c.state for c in v.checks]
        checks = ", ".join(
            f"{states.count(s)} {view_model.state_name(s)}" for s in _SIGNS if s in states
        )
        reducer = code(f"{v.target}:{v.function}")
        mode, engine = code(v.mode_name), code(v.engine)
        numbers = f"{len(v.causes)} | {checks} | {len(v.loud)}"
        rows.append(f"| {reducer} | {mode} | {engine} | {numbers} |")
    return rows


def _finding(verdict: Verdict, cause: Sequence[FindingRecord]) -> str:
    first, *others = cause
    codes = " ".join(dict.fromkeys(f.code for f in cause))
    mode = code(verdict.mode_name)
    sign = "❌" if first.fails else "⚠️"
    parts = [
        f"<details>\n<summary>{sign} {first.code} {plain(first.title)} · {mode}</summary>",
        f"This reducer {plain(view_model.consequence(first, verdict))}.",
        block([*view_model.facts(first), *view_model.trace(first)]),
    ]
    points = [f"- **{label}**: {plain(what)}" for label, what in view_model.explanation(first)]
    points += [f"- **Also** {f.code} {plain(f.title)}, case {code(f.id)}" for f in others]
    parts += ["\n".join(points)] if points else []
    parts.append(block([view_model.replay(first), f"aggverify explain {codes}"], "sh"))
    return "\n\n".join([*parts, "</details>"])


def _inventory(verdict: Verdict) -> str:
    """Every check with its cases, and the lines next to them; collapsed."""
    what = f"{counted(len(verdict.checks), 'check')} on {counted(verdict.executed, 'step')}"
    lines = [f"<details>\n<summary>{what} · {code(verdict.mode_name)}</summary>\n"]
    lines += ["| check | cases | |", "|---|---|---|"]
    for check in verdict.checks:
        state = f"{_SIGNS[check.state]} {plain(view_model.state(check))}"
        lines.append(f"| {code(check.name)} | {check.cases or ''} | {state} |")
    pairs = [*view_model.header(verdict), *view_model.inventory(verdict)]
    listed = [f"- **{label}** {plain(text)}" for label, text in pairs]
    return "\n".join([*lines, "", *listed, "", "</details>"])


def code(text: str) -> str:
    """Text from others in a ``<code>``: neither Markdown nor HTML, no mention and no link."""
    return f"<code>{plain(text)}</code>"


def plain(text: str, most: int = view_model.MAX_LINE) -> str:
    """One line whose punctuation stands for itself: entities can form no structure."""
    return _SPECIAL.sub(_entity, view_model.shortened(text.replace("\n", " "), most))


def _entity(found: re.Match[str]) -> str:
    # GitHub looks for @names and #numbers after the entities are read: the space parts them.
    return f"&#{ord(found[0])};" + ("&#8203;" if found[0] in "@#" else "")


def block(lines: Sequence[str], language: str = "") -> str:
    """Return a fenced block whose fence is longer than any inside."""
    body = "\n".join(lines)
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{body}\n{fence}"
