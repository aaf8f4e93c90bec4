"""Reducers that were written blind: ``blind.jsonl`` has a line for each, ``waves.toml`` has who
wrote which ones, and before reading what.

The table stands apart from the reducers, so that no number of a witness is in their files.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpus.witness import Witness

HERE = Path(__file__).parent
TABLE = HERE / "blind.jsonl"
UNNAMED = ("", "another-formula")


@dataclass(frozen=True, slots=True)
class Found:
    """What one check by itself finds: its name, the code, and the known bug or ""."""

    check: str
    code: str
    bug: str


@dataclass(frozen=True, slots=True)
class Blind:
    """A reducer by a person who had not read how the verifier searches."""

    id: str
    """Its function."""
    module: str
    """Below ``tests.corpus.blind``; the folder is what its mistakes are about."""
    mode: str
    verdict: str
    """Wrong or right."""
    wave: str
    met: str
    """Where such code is met, and why a person writes it."""
    divisor: float | None = None
    engine: str | None = None
    missed: str = ""
    """Why a wrong one is not found."""
    witness: Witness | None = None
    """A step on which a wrong one is wrong; the first wave has none."""
    causes: frozenset[str] = frozenset()
    """Codes, and known bugs by their names: each is true of it. Written down before any run."""
    also: frozenset[str] = frozenset()
    """More that is true of it, by somebody who had seen reports: no first run counts it."""
    mistake: tuple[str, ...] = ()
    """Lines of its file that a reviewer would point at: the condition of a wrong branch, and what
    is wrong there. Written down by somebody who had seen the code alone."""
    alone: Found | None = None
    first: Mapping[str, tuple[int, str]] | None = None
    """By seed the exit code of its first run, and code and bug of the last finding there."""

    @property
    def target(self) -> str:
        return f"tests.corpus.blind.{self.module}:{self.id}"

    @property
    def source(self) -> list[str]:
        """The lines of its file."""
        path = (HERE / "blind").joinpath(*self.module.split(".")).with_suffix(".py")
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]

    def is_cause(self, code: str, bug: str) -> bool:
        """Whether a finding names what is wrong: the bug, or the code where no bug is named."""
        return (code if bug in UNNAMED else bug) in self.causes

    def was_found(self, seed: str) -> bool:
        """Whether its first run ended with exit 1 and a true cause."""
        code, last = (self.first or {})[seed]
        return code == 1 and bool(last) and self.is_cause(*(*last.split(), "")[:2])


def _witness(given: Mapping[str, Any]) -> Witness:
    kept = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Witness(**kept | {"before": tuple(map(_witness, given.get("before", ())))})


def _blind(line: str) -> Blind:
    row = json.loads(line)
    if "witness" in row:
        row["witness"] = _witness(row["witness"])
    if "alone" in row:
        row["alone"] = Found(**row["alone"])
    for name in ("causes", "also"):
        row[name] = frozenset(row.get(name, ()))
    row["mistake"] = tuple(row.get("mistake", ()))
    row["first"] = {seed: (code, last) for seed, (code, last) in row.get("first", {}).items()}
    return Blind(**row)


BLIND = tuple(map(_blind, TABLE.read_text(encoding="utf-8").splitlines()))
WRONG = tuple(row for row in BLIND if row.verdict == "wrong")
RIGHT = tuple(row for row in BLIND if row.verdict == "right")
WAVES: Mapping[str, Mapping[str, str]] = tomllib.loads((HERE / "waves.toml").read_text("utf-8"))
"""In the order of writing: who wrote one before reading what (``by``), and what else is known."""
