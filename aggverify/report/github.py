"""GitHub workflow commands: annotations on the reducer's line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aggverify.report import escape, reading
from aggverify.report.places import place
from aggverify.report.reading import Data

MAX_ANNOTATIONS = 10
"""GitHub shows no more of one step."""
_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY = (*_DATA, (":", "%3A"), (",", "%2C"))


def commands(document: Data, workspace: Path, target: str = "") -> list[str]:
    """One ``::error`` a cause, the worst first; each a single line of output.

    Files are told relative to ``workspace``, the root of the checkout. ``target``: what an error
    that has no verdict is about.
    """
    safe = reading.cleaned(document)
    if document.get("error"):
        where = _where(target, "", workspace)
        return [_command({**where, "title": reading.headline(safe)}, safe["error"])]
    if not any(v["findings"] for v in document["verdicts"]):
        return [] if document["exit"] == 0 else [_command({}, reading.headline(safe))]
    # The files are found by their real names: those of the document as it is.
    verdicts = {id(s): v for s, v in zip(safe["verdicts"], document["verdicts"], strict=True)}
    every = reading.every_cause(safe)
    room = MAX_ANNOTATIONS - (len(every) > MAX_ANNOTATIONS)
    lines = []
    for verdict, cause in every[:room]:
        real = verdicts[id(verdict)]
        where = _where(real["target"], real["function"], workspace)
        title = f"{cause[0]['code']} {cause[0]['title']}"
        lines.append(_command({**where, "title": title}, _message(verdict, cause)))
    if len(every) > room:
        more = reading.counted(len(every) - room, "more finding")
        lines.append(_command({}, f"{more}: see the report"))
    return lines


def _message(verdict: Data, cause: Sequence[Data]) -> str:
    first, mode = cause[0], reading.mode_of(verdict)
    lines = [f"Merging this {reading.consequence(first, mode)}."]
    said = first["message"].partition("\n")[0]
    lines += [reading.shortened(said)] if said else []
    lines += [f"{label}: {what}" for label, what in reading.explanation(first)]
    return "\n".join([*lines, f"Reproduce: {reading.replay(first, verdict)}"])


def _where(target: str, function: str, workspace: Path) -> dict[str, str]:
    found = place(target, function, Path.cwd()) if target else None
    if found is None:
        return {}
    file, root = found.file, workspace.resolve()
    shown = file.relative_to(root) if file.is_relative_to(root) else file
    return {"file": escape.line(str(shown)), "line": str(found.line)}


def _command(properties: dict[str, str], message: str) -> str:
    told = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::error {told}".rstrip() + f"::{_escaped(message, _DATA)}"


def _escaped(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    for sign, escaped in pairs:
        text = text.replace(sign, escaped)
    return text
