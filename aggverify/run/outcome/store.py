"""Counterexamples on disk: literal JSON with everything needed to run them again."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from base64 import b32encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from errno import EEXIST
from pathlib import Path
from typing import Any, Literal

from aggverify import codec
from aggverify.checks import Finding, check
from aggverify.codec import Part
from aggverify.codes.identity import About
from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.files import os_error_text, read_json, resolved, write_inside
from aggverify.run.planning import project
from aggverify.run.planning.target import is_path, split
from aggverify.steps.case import Case

SCHEMA: Literal[3] = 3
UNKNOWN = "no known mode"
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
    whose: tuple[str, ...] = ()
    """Whose finding it is, wherever the project lies: ``path:function`` from the project's folder,
    or ``package.module:function``; then the other path's, the adapter's file and that of a mode
    of the person's own, where there are any."""

    @property
    def id(self) -> str:
        """Six letters and digits: a hash of the reducer, what was claimed and what was found."""
        text = json.dumps(self.named(), sort_keys=True, separators=(",", ":"))
        return b32encode(hashlib.sha256(text.encode()).digest()).decode()[:6].lower()

    def named(self) -> dict[str, Any]:
        """Return what the id stands for: all that makes it this finding and no other."""
        return {
            "whose": list(self.whose),
            "claim": _what_is_run(self.claim),
            "case": self.case.to_json(),
            "check": self.check,
            "code": self.code,
            "trust_formula": self.trust_formula,
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            "schema": SCHEMA,
            **values,
            "whose": list(self.whose),
            "case": self.case.to_json(),
            "claim": self.claim.to_json(),
        }

    @staticmethod
    def from_json(data: object) -> StoredCase:
        """Rebuild a stored case, every name checked; raises InputError."""
        read = codec.read(_StoredFields, data, "the stored case")
        check(read.check)
        return StoredCase(
            Case.from_json(read.case),
            Claim.from_json(read.claim),
            read.check,
            read.code,
            read.trust_formula,
            read.whose,
        )


class _StoredFields(Part, frozen=True, forbid_unknown_fields=False):
    """A stored case as JSON has it."""

    schema: Literal[3]
    case: Mapping[str, Any]
    claim: Mapping[str, Any]
    check: str
    code: str
    trust_formula: bool
    whose: tuple[str, ...]


_ALWAYS = frozenset({"convention", "engine", "mode", "divisor", "policy"})
"""Fields of a claim that are part of an id even at their defaults."""
_NOT_WHAT_IS_RUN = frozenset(
    {"schema", "target", "function", "against", "oracle", "adapter", "max_world", "seed", "budget"}
)
"""Fields of a claim that an id has elsewhere, or that steer the search alone."""


def _what_is_run(claim: Claim) -> dict[str, Any]:
    """Return the fields of a claim that decide what is run on a case; defaults are left out."""
    plain = Claim("", "", "", "").to_json()
    claimed = {k: v for k, v in claim.to_json().items() if k not in _NOT_WHAT_IS_RUN}
    found = {k: v for k, v in claimed.items() if k in _ALWAYS or v != plain[k]}
    return found if claim.against is None else {**found, "against": _what_is_run(claim.against)}


def stored_case(subject: Subject, finding: Finding) -> StoredCase:
    """Return what is stored of a finding."""
    return StoredCase(
        finding.case,
        subject.claim,
        finding.check,
        finding.code,
        subject.trust_formula,
        _whose(subject.claim),
    )


def about(claim: Claim) -> About:
    """Return the reducer under its mode, or the person's own, and its engine."""
    whose = _whose(claim)
    mode = whose[-1] if claim.oracle is not None else claim.mode or UNKNOWN
    return About(whose[0], mode, claim.engine)


def _whose(claim: Claim) -> tuple[str, ...]:
    claims = [c for c in (claim, claim.against) if c is not None]
    names = [f"{file_of(c.target)}:{c.function}" for c in claims]
    return (*names, *(_from_project(own) for own in (claim.adapter, claim.oracle) if own))


def file_of(target: str) -> str:
    """Return a target's file relative to the project's folder where it lies below it.

    Or its module.
    """
    return _from_project(split(target)[0])


def concerns(stored: StoredCase, target: str) -> bool:
    """Whether the case was stored of that target, as far as is known before it is imported."""
    file, _, function = "".join(stored.whose[:1]).rpartition(":")
    return file == file_of(target) and split(target)[1] in (None, function)


def is_about(stored: StoredCase, subject: Subject) -> bool:
    """Whether the case was stored of that reducer, under a claim by which the same is run."""
    mine = subject.claim
    return stored.whose == _whose(mine) and _what_is_run(stored.claim) == _what_is_run(mine)


def _from_project(head: str) -> str:
    """Return a file relative to the project's folder where it lies below it; a module as it is."""
    if not is_path(head):
        return head
    root = project.root(Path.cwd())
    path = Path(os.path.normpath(Path(head).absolute()))
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def check_trusted(stored: StoredCase, name: str, directory: Path) -> None:
    """Raise InputError unless the file that a case names may be run without an option for it.

    It may if it lies in the project, and the case in a report directory, where only the tool
    writes.
    """
    head, _ = split(found_again(stored))
    root = project.root(Path.cwd()).resolve()
    case, cases = resolved(_path(name, directory)), directory / "cases"
    linked = next((folder for folder in (directory, cases) if folder.is_symlink()), None)
    if linked is not None:
        untrusted = f"{linked} is a link, to {linked.resolve()}"
    elif not case.is_relative_to(cases.resolve()):
        untrusted = f"the case lies in {case.parent}, not in {cases}"
    elif not all(place.is_relative_to(root) for place in _places(head)):
        untrusted = f"it does not lie in the project {root}"
    else:
        return
    raise InputError(
        f"{untrusted}: {stored.claim.target!r:.200}, which it names, is run if you say so (as "
        "TARGET, or by --trust-target)"
    )


def _places(head: str) -> list[Path]:
    """Where a file or a module lies."""
    if is_path(head):
        return [resolved(Path(head))]
    return project.places(head, [str(Path.cwd()), *sys.path])


def found_again(stored: StoredCase) -> str:
    """Return the target a case was found on, also from another folder of the same project."""
    text = stored.claim.target
    head, name = split(text)
    mine = stored.whose[0].rpartition(":")[0] if stored.whose else ""
    inside = project.root(Path.cwd()) / mine
    if not is_path(head) or Path(head).exists() or not mine or not inside.exists():
        return text
    return str(inside) + (f":{name}" if name else "")


def write(stored: StoredCase, directory: Path) -> Path:
    """Write the case to ``DIRECTORY/cases/ID.json`` and return the path.

    Raises OSError where that cannot be done, as where another finding lies there.
    """
    with suppress(InputError):
        if read(stored.id, directory).named() != stored.named():
            path = directory / "cases" / f"{stored.id}.json"
            raise FileExistsError(EEXIST, "another finding is stored there", str(path))
    text = json.dumps(stored.to_json(), separators=(",", ":")) + "\n"
    return write_inside(directory, f"cases/{stored.id}.json", text)


def _path(name: str, directory: Path) -> Path:
    path = Path(name)
    return path if path.suffix else directory / "cases" / f"{name}.json"


def read(name: str, directory: Path) -> StoredCase:
    """Return a stored case by its id or its path; raises InputError."""
    path = _path(name, directory)
    try:
        return StoredCase.from_json(read_json(path, "a case", MAX_BYTES))
    except FileNotFoundError:
        known = sorted(p.stem for p in (directory / "cases").glob("*.json"))
        hint = f"stored here: {', '.join(known[:10])}" if known else "none is stored here"
        raise InputError(f"no case {name!r:.200}: {path} does not exist ({hint})") from None


def every(directory: Path) -> tuple[tuple[StoredCase, ...], tuple[str, ...]]:
    """All cases stored there, and why others cannot be read, as from another release."""
    found, unread = [], []
    for path in sorted((directory / "cases").glob("*.json")):
        try:
            found.append(read(str(path), directory))
        except InputError as error:
            unread.append(f"{path}: {error}")
        except OSError as error:
            unread.append(os_error_text(error))
    return tuple(found), tuple(unread)
