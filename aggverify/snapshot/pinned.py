"""Numbers pinned bit for bit, as text: all of them, or of many a digest and what shows how far."""

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from urllib.parse import quote

from aggverify.errors import InputError

IN_FULL = 8
"""Numbers that are written one by one; equal neighbours once, with their number."""
_DIGEST = 12
MOST_FACTOR = 2
"""Largest factor of a number in a projection."""
_ZEROS = re.compile(r"\.?0*(?=p)")


def hexadecimal(number: float) -> str:
    """``0x1.8p+1``: exact, and no longer than it must be."""
    return _ZEROS.sub("", number.hex(), count=1) if math.isfinite(number) else str(number)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A row of numbers. ``numbers``: all of them, None where there are too many.

    Of many: how many, a digest of their bits, and, unless it is ``bare``, the largest by size with
    its place, and its projection, so that small ones that change show as well.
    """

    numbers: tuple[float, ...] | None
    count: int = 0
    digest: str = ""
    place: int = 0
    largest: float = 0.0
    projection: float = 0.0
    bare: bool = False

    @staticmethod
    def of(numbers: Sequence[float], most: int = IN_FULL, *, bare: bool = False) -> Pinned:
        """In full up to ``most`` of them."""
        if len(numbers) <= most:
            return Pinned(tuple(numbers), len(numbers))
        bits = b"".join(struct.pack("<d", math.nan if x != x else x) for x in numbers)
        digest = sha256(bits).hexdigest()[:_DIGEST]
        if bare:
            return Pinned(None, len(numbers), digest, bare=True)
        place = max(range(len(numbers)), key=lambda i: _size(numbers[i]))
        return Pinned(None, len(numbers), digest, place, numbers[place], projection(numbers))

    def __str__(self) -> str:
        if self.numbers is not None:
            runs = (
                (text, sum(1 for _ in run)) for text, run in groupby(map(hexadecimal, self.numbers))
            )
            return ",".join(text if n == 1 else f"{text}*{n}" for text, n in runs) or "none"
        if self.bare:
            return f"{self.count}:{self.digest}"
        largest, projected = hexadecimal(self.largest), hexadecimal(self.projection)
        return f"{self.count}:{self.digest}:{self.place}:{largest}:{projected}"

    @staticmethod
    def read(text: str) -> Pinned:
        """Return what was written; raises ValueError for anything else."""
        if text == "none":
            return Pinned(())
        if ":" not in text:
            numbers = tuple(number for word in text.split(",") for number in _run(word))
            return Pinned(numbers, len(numbers))
        if text.count(":") == 1:
            count, digest = text.split(":")
            if len(digest) != _DIGEST or int(count) < 1:
                raise ValueError(text)
            return Pinned(None, int(count), digest, bare=True)
        count, digest, place, largest, total = text.split(":")
        if len(digest) != _DIGEST or not 0 <= int(place) < int(count):
            raise ValueError(text)
        wide = float.fromhex(largest), float.fromhex(total)
        return Pinned(None, int(count), digest, int(place), *wide)


def _run(word: str) -> list[float]:
    """One number, or several equal ones."""
    number, _, times = word.partition("*")
    if times and not 1 < int(times) <= IN_FULL:
        raise ValueError(word)
    return [float.fromhex(number)] * int(times or 1)


def projection(numbers: Sequence[float]) -> float:
    """Return the sum of all numbers, each times an irregular but fixed factor of its place.

    Numbers that change places change it, too. NaN where anything on the way is not finite.
    """
    factors = random.Random(0)  # its numbers are those of every Python
    products = [x * (1 + factors.random()) for x in numbers]
    if not all(map(math.isfinite, products)):
        return math.nan
    try:
        return math.fsum(products)
    except OverflowError:
        return math.nan


def _size(number: float) -> float:
    return math.inf if number != number else abs(number)


@dataclass(frozen=True, slots=True)
class PinnedEntry:
    """What came of one case: numbers by name, or how the ranks failed instead."""

    values: Mapping[str, Pinned] = field(default_factory=dict)
    fault: str = ""
    """Its kind, and the type of the exception."""

    def __str__(self) -> str:
        if self.fault:
            return f"fault={quote(self.fault)}"
        return " ".join(f"{quote(name)}={numbers}" for name, numbers in self.values.items())


@dataclass(frozen=True, slots=True, order=True)
class EntryKey:
    """Which entry it is; its words stand at the beginning of a line, in this order."""

    mode: str
    case: str
    layout: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.mode} {self.case} {self.layout} {self.dtype}"


def broken(where: str, line: str) -> InputError:
    """Return the error for a line that no snapshot has."""
    return InputError(f"{where}: not a line of a snapshot: {line!r:.200}; record it again")
