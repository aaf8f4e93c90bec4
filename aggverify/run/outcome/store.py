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
from aggverify.conventions import convention
from aggverify.engines import engine
from aggverify.errors import InputError
from aggverify.execution.subject import NONLINEAR, Subject
from aggverify.files import read_json, write_inside
from aggverify.oracles import DEFAULT_POLICY, OracleError, Policy
from aggverify.steps.case import Case

MAX_BYTES = 1 << 20
"""A stored case is at most 2 KB when shrunk; anything near this is not one of ours."""
_TEXT = ("target", "function", "check", "code", "convention", "engine")


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case, the check it breaks, and how the candidate is called."""

    case: Case
    target: str
    function: str
    check: str
    code: str
    convention: str
    engine: str
    mode: str | None
    divisor: float | None
    policy: Mapping[str, str]
    """Readings other than the default."""
    oracle: str | None = None
    """The file of the person's own mode, only told; what is run is said on the command line."""

    @property
    def id(self) -> str:
        """Six letters and digits: a hash of what is run, not of whose reducer it is."""
        document = self.to_json()
        del document["target"], document["function"], document["code"]
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return b32encode(hashlib.sha256(text.encode()).digest()).decode()[:6].lower()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "case": self.case.to_json(),
            **{name: getattr(self, name) for name in _TEXT},
            "mode": self.mode,
            "divisor": self.divisor,
            "policy": dict(self.policy),
            **({} if self.oracle is None else {"oracle": self.oracle}),
        }

    @staticmethod
    def from_json(data: object) -> StoredCase:
        """Rebuild a stored case, every name checked; raises InputError."""
        if not isinstance(data, Mapping):
            raise InputError(f"a stored case is a JSON object, got {type(data).__name__}")
        missing = {*_TEXT, "case", "mode", "divisor", "policy"} - set(data)
        if missing:
            raise InputError(f"the stored case lacks {', '.join(sorted(missing))}")
        for name in _TEXT:
            if not isinstance(data[name], str):
                raise InputError(f"{name} must be text, got {data[name]!r:.200}")
        check(data["check"])
        convention(data["convention"])
        engine(data["engine"])
        divisor = data["divisor"]
        if divisor is not None and (
            isinstance(divisor, bool) or not isinstance(divisor, int | float)
        ):
            raise InputError(f"divisor must be a number or null, got {divisor!r:.200}")
        if data["mode"] is not None and not isinstance(data["mode"], str):
            raise InputError(f"mode must be text or null, got {data['mode']!r:.200}")
        oracle = data.get("oracle")
        if oracle is not None and not isinstance(oracle, str):
            raise InputError(f"oracle must be text, got {oracle!r:.200}")
        return StoredCase(
            policy=_readings(data["policy"]),
            oracle=oracle,
            case=Case.from_json(data["case"]),
            mode=data["mode"],
            divisor=divisor,
            **{name: data[name] for name in _TEXT},
        )


def stored_case(subject: Subject, finding: Finding) -> StoredCase:
    """What is stored of a finding."""
    return StoredCase(
        case=finding.case,
        target=subject.target,
        function=subject.function,
        check=finding.check,
        code=finding.code,
        convention=subject.convention.name,
        engine=subject.engine.name,
        mode=NONLINEAR if subject.nonlinear else subject.mode,
        divisor=subject.divisor,
        oracle=None if subject.oracle is None else subject.oracle.path,
        policy={
            f.name: getattr(subject.policy, f.name)
            for f in fields(Policy)
            if getattr(subject.policy, f.name) != getattr(DEFAULT_POLICY, f.name)
        },
    )


def _readings(data: object) -> dict[str, str]:
    if not isinstance(data, Mapping):
        raise InputError(f"policy must be an object, got {data!r:.200}")
    try:
        Policy(**data)
    except (OracleError, TypeError) as error:
        raise InputError(f"policy cannot be used: {error}") from None
    return dict(data)


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
