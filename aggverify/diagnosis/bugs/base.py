"""A bug that really happened, and the clues by which it is recognised."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from aggverify.diagnosis.clues import Clue, Clues, Shape


@dataclass(frozen=True, slots=True)
class Bug:
    """What is computed, where it was seen, how it was mended; recognised when every clue fits."""

    name: str
    sentence: str
    seen: str
    fix: str
    clues: tuple[Clue, ...]
    in_numbers: bool = False
    """Whether the finding's message says in numbers what ``sentence`` says in words."""

    def explains(self, seen: Clues) -> bool:
        """Whether it is what was seen."""
        return all(clue.fits(seen) for clue in self.clues)

    def leaves_out(self, own: Set[str]) -> bool:
        """Whether a form has parts that it says nothing of; ``own``: those that are right."""
        shapes = [clue for clue in self.clues if isinstance(clue, Shape)]
        return any(shape.open - own for shape in shapes)
