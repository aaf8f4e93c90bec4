"""Verdict documents from files, and several of one run as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from aggverify.errors import InputError
from aggverify.files import read_json
from aggverify.model import MAX_BYTES, SCHEMA, Document, load
from aggverify.regression.model import CONFORMS


def loaded(path: Path) -> Document:
    """Return the document, or all below a folder as one; raises InputError."""
    if not path.is_dir():
        return load(path)
    found = [load(file) for file in sorted(path.rglob("*.json")) if _is_one(file)]
    if not found:
        raise InputError(f"no verdict document lies below {path}")
    return merged(found)


def _is_one(path: Path) -> bool:
    """Whether a JSON file is a verdict document: stored cases, above all, lie next to them."""
    data = read_json(path, "a verdict document", MAX_BYTES)
    return isinstance(data, dict) and data.get("schema") == SCHEMA and "verdicts" in data


def merged(documents: Sequence[Document]) -> Document:
    """All verdicts of several commands on one state of the code; the worst exit of any."""
    first = documents[0]
    for other in documents[1:]:
        if (other.aggverify, other.environment) != (first.aggverify, first.environment):
            raise InputError(
                f"documents of one side come from one environment, got {first.aggverify}, "
                f"{first.environment} and {other.aggverify}, {other.environment}"
            )
    codes = [document.exit for document in documents]
    errors = [document.error for document in documents if document.error]
    return replace(
        first,
        exit=next((code for code in (130, 1, 2) if code in codes), max(codes, default=CONFORMS)),
        error="\n".join(errors) or None,
        incomplete=next((d.incomplete for d in documents if d.incomplete), None),
        verdicts=tuple(verdict for document in documents for verdict in document.verdicts),
        replays=tuple(replay for document in documents for replay in document.replays),
        baseline=tuple(one for document in documents for one in document.baseline),
    )
