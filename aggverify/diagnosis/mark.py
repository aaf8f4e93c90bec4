"""A recognised trace that is no closed form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A name the bug table knows, with a sentence."""

    name: str
    sentence: str
