"""GitHub workflow commands: annotations on the reducer's line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aggverify import escape
from aggverify.model import Document, FindingRecord, Verdict, harmless
from aggverify.report import view_model
from aggverify.report.formatting import counted
from aggverify.report.source_locations import place

MAX_ANNOTATIONS = 10
"""GitHub shows no more of one step."""
_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY = (*_DATA, (":", "%3A"), (",", "%2C"))


def commands(document: Document, workspace: Path, target: str = "") -> list[str]:
    """One ``::error`` (``::notice`` for what does not fail) a cause, the worst first.

    Each is a single line. Files are named relative to ``workspace``, the root of the checkout.
    ``target``: what an error that has no verdict is about.
    """
    safe = harmless(document)
    if safe.error:
        where = _where(target, "", workspace)
        return [command({**where, "title": view_model.headline(safe)}, safe.error)]
    every = view_model.every_cause(safe)
    if not any(verdict.fails for verdict in safe.verdicts) and document.exit:
        return [command({}, view_model.headline(safe))]
    # Escaping may change a path, so files are looked up by the names before it.
    real = {id(s): v for s, v in zip(safe.verdicts, document.verdicts, strict=True)}
    # One annotation is kept for an incomplete run, and one for the number of those left out.
    most = MAX_ANNOTATIONS - bool(safe.incomplete)
    room = most - (len(every) > most)
    lines = []
    for verdict, (first, *_) in every[:room]:
        named = real[id(verdict)]
        where = _where(named.target, named.function, workspace)
        title = f"{first.code} {first.title}"
        level = "error" if first.fails else "notice"
        lines.append(command({**where, "title": title}, _message(verdict, first), level))
    if safe.incomplete:
        lines.append(command({}, view_model.headline(safe)))
    if len(every) > room:
        more = counted(len(every) - room, "more finding")
        lines.append(command({}, f"{more}: see the report"))
    return lines


def _message(verdict: Verdict, finding: FindingRecord) -> str:
    lines = [f"This reducer {view_model.consequence(finding, verdict)}."]
    first = finding.message.partition("\n")[0]
    lines += [view_model.shortened(first)] if first else []
    lines += [f"{label}: {what}" for label, what in view_model.explanation(finding)]
    lines += filter(None, [view_model.assumption(verdict)])
    return "\n".join([*lines, f"Reproduce: {view_model.replay(finding)}"])


def _where(target: str, function: str, workspace: Path) -> dict[str, str]:
    found = place(target, function, Path.cwd()) if target else None
    if found is None:
        return {}
    file, root = found.file, workspace.resolve()
    shown = file.relative_to(root) if file.is_relative_to(root) else file
    return {"file": escape.line(str(shown)), "line": str(found.line)}


def command(properties: dict[str, str], message: str, level: str = "error") -> str:
    """One workflow command."""
    listed = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{level} {listed}".rstrip() + f"::{_escaped(message, _DATA)}"


def _escaped(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    for sign, escaped in pairs:
        text = text.replace(sign, escaped)
    return text
