"""Changes on the lines of the files that they are about: annotations, and GitLab's code quality."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from aggverify import escape
from aggverify.escape import json_text
from aggverify.regression import view_model
from aggverify.regression.model import Change, Comparison, harmless
from aggverify.report.formatting import counted
from aggverify.report.github import MAX_ANNOTATIONS, command
from aggverify.report.source_locations import place

_LEVELS = {True: ("error", "major"), False: ("notice", "info")}


def commands(comparison: Comparison, workspace: Path) -> list[str]:
    """Workflow commands of GitHub: one line for each change to look at, the worst first.

    Files are named relative to ``workspace``, the root of the checkout.
    """
    changes = list(_placed(comparison, workspace))
    room = MAX_ANNOTATIONS - (len(changes) > MAX_ANNOTATIONS)
    lines = []
    for change, file, line, bad in changes[:room]:
        where = {"file": file, "line": str(line)} if file else {}
        title = {"title": f"{change.kind}: {change.what}"}
        lines.append(command({**where, **title}, _message(change), _LEVELS[bad][0]))
    if len(changes) > room:
        more = counted(len(changes) - room, "more change")
        lines.append(command({}, f"{more}: see the report", "notice"))
    return lines


def render(comparison: Comparison) -> str:
    """GitLab's code-quality report."""
    found = []
    for change, file, line, bad in _placed(comparison, Path.cwd()):
        parts = [change.kind, change.what, file, view_model.where(change)]
        found.append(
            {
                "description": f"{change.what}: {view_model.change_sentence(change)}",
                "check_name": f"aggverify {change.kind}",
                "fingerprint": hashlib.sha256("\n".join(parts).encode()).hexdigest(),
                "severity": _LEVELS[bad][1],
                "location": {"path": file or ".", "lines": {"begin": line}},
            }
        )
    return json_text(found, indent=1) + "\n"


def _placed(comparison: Comparison, workspace: Path) -> Iterator[tuple[Change, str, int, bool]]:
    """Every change to look at with its file and line, and whether it is a reason not to merge."""
    # Escaping may change a path, so files are looked up by the names before it.
    safe = harmless(comparison)
    for real, change in zip(comparison.changes, safe.changes, strict=True):
        if change not in view_model.loud(safe):
            continue
        target, function = "", ""
        if real.about is not None:
            target, _, function = real.about.target.rpartition(":")
        found = place(target, function, workspace) if target else None
        file, line = "", 1
        if found is not None and found.file.is_relative_to(workspace.resolve()):
            file = escape.line(str(found.file.relative_to(workspace.resolve())))
            line = found.line
        yield change, file, line, view_model.is_bad(change, safe)


def _message(change: Change) -> str:
    lines = [
        view_model.change_sentence(change),
        *(f"{label}: {w}" for label, w in view_model.explanation(change)),
    ]
    return "\n".join([*lines, *(f"Reproduce: {word}" for word in view_model.commands(change)[:1])])
