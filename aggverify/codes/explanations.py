"""What each code means, as data: one TOML file a family of codes beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from aggverify.codes.registry import CODES, WARNINGS
from aggverify.errors import unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The smallest step on which a mutant fails with the code, in the notation of steps.

    ``expected`` and ``actual`` are the weight of ``token``; where no weight is read, ``says`` is a
    regular expression that the finding's message matches.
    """

    mutant: str
    """``module.function`` in the corpus of mutants, which the tests keep."""
    reducer: str
    """Its text (a test holds it to the corpus)."""
    check: str
    mode: str
    step: str = ""
    ones: int = 0
    """Instead of ``step``: one sample of so many unmasked tokens."""
    micro_batches: str = "0"
    cp: int = 1
    cp_kind: str = "zigzag"
    dtype: str = "float64"
    losses: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()
    rollouts: tuple[int, ...] = ()
    convention: str = "native"
    engine: str = "sum"
    claims: tuple[str, ...] = ()
    divisor: float | None = None
    terms: tuple[str, ...] = ()
    """Names of the per-token inputs beside the losses."""
    against: str | None = None
    """Another mutant, for a check of two paths, and its text."""
    against_reducer: str = ""
    token: int = 0
    expected: str | None = None
    actual: str | None = None
    says: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One code explained; warnings have no example."""

    code: str
    title: str
    meaning: str
    bugs: tuple[str, ...]
    fix: str
    example: Example | None
    more: tuple[Example, ...] = ()
    """The smallest examples of other checks that tell this code."""

    @property
    def examples(self) -> tuple[Example, ...]:
        """All of them; none for a warning."""
        return (self.example, *self.more) if self.example else ()


def entry(code: str) -> Entry:
    """The entry of a code, written in any case; raises InputError with the nearest one."""
    found = entries().get(code.strip().upper())
    if found is None:
        raise unknown("code", code.strip().upper(), entries())
    return found


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry in order of codes."""
    raw: dict[str, Any] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            raw |= tomllib.loads(file.read_text(encoding="utf-8"))
    return {code: _entry(code, data) for code, data in raw.items()}


def _entry(code: str, data: Mapping[str, Any]) -> Entry:
    known = CODES.get(code) or WARNINGS[code]
    return Entry(
        code,
        known.title,
        data["meaning"].strip(),
        tuple(data["bugs"]),
        data["fix"].strip(),
        _example(data["example"]) if "example" in data else None,
        tuple(map(_example, data.get("more", ()))),
    )


def _example(data: Mapping[str, Any]) -> Example:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Example(**given)
