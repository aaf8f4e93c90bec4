"""Counterexamples on disk: literal JSON with everything needed to run them again."""

from __future__ import annotations

import hashlib
import json
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from aggverify.checks import Finding, check
from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.files import read_json, write_inside
from aggverify.steps.case import Case

SCHEMA = 2
MAX_BYTES = 1 << 20
"""A stored case is at most 3 KB when shrunk; anything near this is not one of ours."""


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case, the check it breaks, and the claim it breaks it under."""

    case: Case
    claim: Claim
    check: str
    code: str
    trust_formula: bool = True
    """False where the formula was known to be wrong, so that only invariance was judged."""

    @property
    def id(self) -> str:
        """Six letters and digits: a hash of what is run, not of whose reducer it is."""
        said = {
            key: value for key, value in self.claim.to_json().items() if key not in _NOT_WHAT_IS_RUN
        }
        plain = Claim("", "", "", "").to_json()
        said = {k: v for k, v in said.items() if k in _ALWAYS or v != plain[k]}
        said |= {"case": self.case.to_json(), "check": self.check}
        if not self.trust_formula:
            said["trust_formula"] = False
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return b32encode(hashlib.sha256(text.encode()).digest()).decode()[:6].lower()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            "schema": SCHEMA,
            **values,
            "case": self.case.to_json(),
            "claim": self.claim.to_json(),
        }

    @staticmethod
    def from_json(data: object) -> StoredCase:
        """Rebuild a stored case, every name checked; raises InputError."""
        if not isinstance(data, Mapping):
            raise InputError(f"a stored case is a JSON object, got {type(data).__name__}")
        if data.get("schema") != SCHEMA:
            raise InputError(
                f"a stored case's schema must be {SCHEMA}, got {data.get('schema')!r:.200}"
            )
        missing = {f.name for f in fields(StoredCase)} - set(data)
        if missing:
            raise InputError(f"the stored case lacks {', '.join(sorted(missing))}")
        for name in ("check", "code"):
            if not isinstance(data[name], str):
                raise InputError(f"{name} must be text, got {data[name]!r:.200}")
        if not isinstance(data["trust_formula"], bool):
            raise InputError(f"trust_formula must be a bool, got {data['trust_formula']!r:.200}")
        check(data["check"])
        return StoredCase(
            Case.from_json(data["case"]),
            Claim.from_json(data["claim"]),
            data["check"],
            data["code"],
            data["trust_formula"],
        )


_ALWAYS = frozenset({"convention", "engine", "mode", "divisor", "policy"})
"""What is part of an id also where it is nothing."""
_NOT_WHAT_IS_RUN = frozenset(
    {"schema", "target", "function", "terms", "against", "max_world", "seed", "budget"}
)
"""Of a claim: whose reducers they are, and how the case was searched for."""


def stored_case(subject: Subject, finding: Finding) -> StoredCase:
    """What is stored of a finding."""
    return StoredCase(
        finding.case, subject.claim, finding.check, finding.code, subject.trust_formula
    )


def write(stored: StoredCase, directory: Path) -> Path:
    """Write the case to ``DIRECTORY/cases/ID.json`` and return the path."""
    text = json.dumps(stored.to_json(), separators=(",", ":")) + "\n"
    return write_inside(directory, f"cases/{stored.id}.json", text)


def read(name: str, directory: Path) -> StoredCase:
    """A stored case by its id or its path; raises InputError."""
    path = Path(name)
    if not path.suffix:
        path = directory / "cases" / f"{name}.json"
    try:
        return StoredCase.from_json(read_json(path, "a case", MAX_BYTES))
    except FileNotFoundError:
        known = sorted(p.stem for p in (directory / "cases").glob("*.json"))
        hint = f"stored here: {', '.join(known[:10])}" if known else "none is stored here"
        raise InputError(f"no case {name!r:.200}: {path} does not exist ({hint})") from None
