"""A comparison as plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from aggverify.regression import reading
from aggverify.regression.model import Change, Comparison, harmless

WIDTH = 80


def render(comparison: Comparison) -> str:
    """What a reviewer has to look at, each with its command; the rest a line each; the headline."""
    safe = harmless(comparison)
    loud, quiet = reading.loud(safe), reading.quiet(safe)
    lines = [f" {safe.base.name} → {safe.head.name} ".center(WIDTH, "─")]
    lines += [f"not the same: {words}" for words in safe.banner]
    for change in loud:
        lines += ["", *_told(change)]
    lines += [""] * bool(loud and quiet)
    lines += [_line(change) for change in quiet]
    lines += ["", reading.headline(safe)]
    return "\n".join(lines) + "\n"


def _told(change: Change) -> Iterator[str]:
    yield f"{change.kind}: {change.what}" + (f"  [{reading.where(change)}]" if change.about else "")
    if change.base or change.head:
        yield f"    base  {change.base}"
        yield f"    head  {change.head}"
    yield f"    {reading.says(change)}"
    yield from (f"    {line}" for line in reading.details(change))
    yield from (f"    {label.lower()}: {what}" for label, what in reading.explanation(change))
    for name, command in zip(("Reproduce:", "Explain:"), reading.commands(change), strict=False):
        yield f"{name:12}{command}"


def _line(change: Change) -> str:
    words = f"{change.base} → {change.head}" if change.base != change.head else change.head
    return f"{change.kind:10} {reading.where(change)}: {change.what} ({words})"
