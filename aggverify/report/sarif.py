"""SARIF 2.1.0 for code scanning: one result a cause, on the reducer's line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aggverify import __version__
from aggverify.codes import CODES
from aggverify.codes.explanations import explanation
from aggverify.escape import json_text
from aggverify.model import Document, FindingRecord, Verdict, harmless
from aggverify.report import view_model
from aggverify.report.source_locations import place

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {"high": "error", "medium": "error", "warning": "warning"}


def render(document: Document) -> str:
    """Return the log of one run; files are named relative to the current folder, ``%SRCROOT%``."""
    safe = harmless(document)
    # Escaping may change a path, so files are looked up by the names before it.
    real = {id(s): v for s, v in zip(safe.verdicts, document.verdicts, strict=True)}
    every = view_model.every_cause(safe)
    codes = sorted({first.code for _, (first, *_) in every})
    results = [_result(real[id(v)], v, cause, codes) for v, cause in every]
    run = {
        "tool": {
            "driver": {
                "name": "aggverify",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(code, every) for code in codes],
            }
        },
        "invocations": [_invocation(safe)],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(code: str, every: Sequence[tuple[Verdict, list[FindingRecord]]]) -> dict[str, Any]:
    """Return the rule of a code; of a person's own check only the document has the title."""
    title = next(first.title for _, (first, *_) in every if first.code == code)
    rule: dict[str, Any] = {"id": code, "shortDescription": {"text": title}}
    known = CODES.get(code)
    explained = None if known is None else explanation(known)
    if known is not None:
        rule["defaultConfiguration"] = {"level": _LEVELS[known.severity]}
    if explained is not None:
        rule["fullDescription"] = {"text": explained.meaning}
        rule["help"] = {
            "text": f"{explained.meaning}\n\n{explained.fix}\n\naggverify explain {code}"
        }
    return rule


def _result(
    real: Verdict, verdict: Verdict, cause: Sequence[FindingRecord], codes: Sequence[str]
) -> dict[str, Any]:
    first = cause[0]
    lines = [
        f"{verdict.function} {view_model.consequence(first, verdict)}.",
        *view_model.facts(first),
    ]
    lines += [f"{label}: {what}" for label, what in view_model.explanation(first)]
    lines.append(f"Reproduce: {view_model.replay(first)}")
    result: dict[str, Any] = {
        "ruleId": first.code,
        "ruleIndex": codes.index(first.code),
        "level": _LEVELS.get(first.severity, "error") if first.fails else "note",
        "message": {"text": "\n".join(lines)},
        "locations": _locations(real),
        # Without the case: the same finding on another case stays the same alert.
        "partialFingerprints": {
            "aggverify/v1": f"{first.signature}:{verdict.function}:{verdict.mode_name}"
        },
        "properties": {
            "case": first.id,
            "mode": verdict.mode_name,
            "engine": verdict.engine,
            "checks": [finding.check for finding in cause],
            "tags": sorted({finding.code for finding in cause}),
        },
    }
    if first.waived is not None:
        result["suppressions"] = [{"kind": "external", "justification": first.waived}]
    return result


def _locations(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the reducer's definition; none where no file of it lies here."""
    found = place(verdict.target, verdict.function, Path.cwd())
    if found is None:
        return []
    root = Path.cwd().resolve()
    inside = found.file.is_relative_to(root)
    uri = quote(str(found.file.relative_to(root))) if inside else found.file.as_uri()
    base = {"uriBaseId": "%SRCROOT%"} if inside else {}
    physical = {"artifactLocation": {"uri": uri, **base}, "region": {"startLine": found.line}}
    return [{"physicalLocation": physical}]


def _invocation(document: Document) -> dict[str, Any]:
    """Whether it came to a judgement, and why not."""
    judged = document.error is None and not document.incomplete and document.exit < 2
    explained = [{"level": "error", "message": {"text": view_model.headline(document)}}]
    return {
        "executionSuccessful": judged,
        "exitCode": document.exit,
        **({} if judged else {"toolExecutionNotifications": explained}),
    }
