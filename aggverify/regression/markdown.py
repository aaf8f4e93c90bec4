"""A comparison as Markdown for a pull request: a marker, one headline, a small table."""

from __future__ import annotations

from collections.abc import Sequence

from aggverify.regression import view_model
from aggverify.regression.model import Change, Comparison, harmless
from aggverify.report.markdown import MARKER, block, code, fitted, plain

MAX_ROWS = 25
"""Rows of a table; a reviewer reads the first few."""


def render(comparison: Comparison) -> str:
    """Return the comment; what does not fit is left out whole, and counted."""
    safe = harmless(comparison)
    loud, quiet = view_model.loud(safe), view_model.quiet(safe)
    sign = "❌" if safe.exit else "✅"
    head = [MARKER, f"### {sign} {plain(view_model.headline(safe), 400)}"]
    if safe.banner:
        head.append("\n".join(f"> not the same: {plain(words)}  " for words in safe.banner))
    if loud:
        head.append(_table(loud, safe))
    found = [_details(change) for change in loud if change.finding or change.more]
    return fitted(head, found, [_quiet(quiet, safe)] if quiet else [])


def _table(changes: Sequence[Change], comparison: Comparison) -> str:
    base, head = plain(comparison.base.name), plain(comparison.head.name)
    rows = [f"| | what | reducer · mode | {base} | {head} |", "|---|---|---|---|---|"]
    for change in changes[:MAX_ROWS]:
        what = plain(change.what, view_model.MAX_CELL)
        sides = [plain(side, view_model.MAX_CELL) for side in (change.base, change.head)]
        kind = f"{view_model.SIGNS[change.kind]} {change.kind}"
        rows.append(f"| {kind} | {what} | {_where(change)} | {sides[0]} | {sides[1]} |")
    if len(changes) > MAX_ROWS:
        rows.append(f"| | and {len(changes) - MAX_ROWS} more | | | |")
    return "\n".join(rows)


def _where(change: Change) -> str:
    return code(view_model.where(change)) if change.about else ""


def _details(change: Change) -> str:
    sign, title = view_model.SIGNS[change.kind], plain(change.what)
    parts = [
        f"<details>\n<summary>{sign} {change.kind}: {title} · {_where(change)}</summary>",
        plain(view_model.change_sentence(change)),
    ]
    parts.append(block(view_model.details(change)))
    points = [f"- **{label}**: {plain(what)}" for label, what in view_model.explanation(change)]
    parts += ["\n".join(points)] if points else []
    if commands := view_model.commands(change):
        parts.append(block(commands, "sh"))
    return "\n\n".join([*parts, "</details>"])


def _quiet(changes: Sequence[Change], comparison: Comparison) -> str:
    """Write the changes that need no attention; collapsed."""
    lines = [f"<details>\n<summary>✅ {view_model.tally(changes)}</summary>\n"]
    return "\n".join([*lines, _table(changes, comparison), "", "</details>"])
