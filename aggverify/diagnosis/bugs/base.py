"""A bug that really happened, and the clues by which it is recognised."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Set
from importlib.resources import files

from aggverify import codec
from aggverify.codec import Part
from aggverify.diagnosis.clues import (
    Broken,
    Claimed,
    Clue,
    Clues,
    Error,
    FormShape,
    Leaks,
    Off,
    Sign,
    WholePart,
)


class KnownBug(Part, frozen=True):
    """What is computed, where it was seen, how it was mended; recognised when every clue fits."""

    name: str
    sentence: str
    seen: str
    fix: str
    signs: tuple[str, ...] = ()
    """Regular expressions; each is to match one."""
    shape: FormShape | None = None
    off: Off | None = None
    claimed: Claimed | None = None
    leaks: Leaks | None = None
    broken: Broken | None = None
    error: Error | None = None
    whole_part: WholePart | None = None
    in_numbers: bool = False
    """Whether the finding's message has in numbers what ``sentence`` has in words."""
    times_the_engines_factor: bool = False
    """Whether what ``fix`` asks for is returned times the factor that the engine asks for."""

    @property
    def clues(self) -> Iterator[Clue]:
        """All clues by which it is recognised."""
        yield from map(Sign, self.signs)
        parts = (self.shape, self.off, self.claimed, self.leaks, self.broken, self.error)
        yield from (clue for clue in (*parts, self.whole_part) if clue is not None)

    def explains(self, seen: Clues) -> bool:
        """Whether it is what was seen."""
        return all(clue.fits(seen) for clue in self.clues)

    def leaves_out(self, own: Set[str]) -> bool:
        """Whether a form has parts that it leaves open; ``own``: those that are right."""
        return self.shape is not None and bool(self.shape.open - own)


class Bugs(Part, frozen=True):
    """A file of them."""

    bugs: tuple[KnownBug, ...]


def stored() -> Iterator[KnownBug]:
    """Those of every file next to this module, in order of their names."""
    for file in sorted(files(__package__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            yield from codec.read(Bugs, tomllib.loads(file.read_text("utf-8")), file.name).bugs
