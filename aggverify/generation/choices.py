"""Choices read from bytes: 0 is the simplest one, and is what is read past the end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


class ChoiceSource:
    """Reads choices from bytes; zeros follow after their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        start, self._at = self._at, self._at + count
        return self._data[start : self._at].ljust(count, b"\0")

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, the first for 0."""
        width = 1 if len(choices) <= 256 else 2
        return choices[int.from_bytes(self.take(width)) * len(choices) >> 8 * width]

    def flag(self) -> bool:
        """One bit."""
        return self.take(1)[0] > 127

    def order(self, count: int) -> list[int]:
        """Draw the numbers below ``count``, forwards or backwards.

        One bit shrinks whatever the number of samples, which a permutation would not.
        """
        return list(range(count))[:: -1 if self.flag() else 1]


@lru_cache(maxsize=64)
def mostly_short(longest: int) -> tuple[int, ...]:
    """Half of the time 1 to 3, otherwise up to ``longest``."""
    short = tuple(range(1, min(3, longest) + 1))
    return tuple(sorted(short * (1 + longest // 3) + tuple(range(1, longest + 1))))
