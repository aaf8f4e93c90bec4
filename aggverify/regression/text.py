"""A comparison as plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from aggverify.regression import view_model
from aggverify.regression.model import Change, Comparison, harmless

WIDTH = 80


def render(comparison: Comparison) -> str:
    """Return what a reviewer has to look at, each with its command; the rest a line each.

    The headline stands last.
    """
    safe = harmless(comparison)
    loud, quiet = view_model.loud(safe), view_model.quiet(safe)
    lines = [f" {safe.base.name} → {safe.head.name} ".center(WIDTH, "─")]
    lines += [f"not the same: {words}" for words in safe.banner]
    for change in loud:
        lines += ["", *_lines_of(change)]
    lines += [""] * bool(loud and quiet)
    lines += [_line(change) for change in quiet]
    lines += ["", view_model.headline(safe)]
    return "\n".join(lines) + "\n"


def _lines_of(change: Change) -> Iterator[str]:
    yield f"{change.kind}: {change.what}" + (
        f"  [{view_model.where(change)}]" if change.about else ""
    )
    if change.base or change.head:
        yield f"    base  {change.base}"
        yield f"    head  {change.head}"
    yield f"    {view_model.change_sentence(change)}"
    yield from (f"    {line}" for line in view_model.details(change))
    yield from (f"    {label.lower()}: {what}" for label, what in view_model.explanation(change))
    for name, command in zip(("Reproduce:", "Explain:"), view_model.commands(change), strict=False):
        yield f"{name:12}{command}"


def _line(change: Change) -> str:
    words = f"{change.base} → {change.head}" if change.base != change.head else change.head
    return f"{change.kind:10} {view_model.where(change)}: {change.what} ({words})"
