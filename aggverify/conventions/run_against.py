"""What a convention has been run against, and whether the candidate is newer than that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunAgainst:
    """A release of a package on PyPI, or a revision of a repository (``owner/name``)."""

    name: str
    version: str
    date: str
    """When it was run, as ``2026-11-26``."""

    @property
    def text(self) -> str:
        """``skyrl 0.4.0 (2026-11-26)``."""
        return f"{self.name} {self.version} ({self.date})"


def run_against(how: Any) -> tuple[RunAgainst, ...]:
    """Return what a convention names, the newest first; nothing of one that names none."""
    found: tuple[RunAgainst, ...] = getattr(how, "run_against", ())
    return found


def framework(how: Any) -> str:
    """Return what the convention calls, as a person knows it."""
    return next((one.name for one in run_against(how)), str(how.title))


def newer(how: Any, installed: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note for every installed package newer than any version it was run against."""
    known: dict[str, RunAgainst] = {}
    for one in run_against(how):
        if one.name not in known or _key(known[one.name].version) < _key(one.version):
            known[one.name] = one
    return tuple(
        f"{name} {installed[name]} is newer than what {how.name} has been run against: {one.text}"
        for name, one in known.items()
        if name in installed and _key(one.version) < _key(installed[name])
    )


def _key(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, as far as they are compared."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
