"""Numbers pinned bit for bit, as text: all of them, or of many a digest and what tells how far."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import quote

from aggverify.errors import InputError

IN_FULL = 8
"""Numbers that are written one by one."""
_DIGEST = 16
_ZEROS = re.compile(r"\.?0*(?=p)")


def hexadecimal(number: float) -> str:
    """``0x1.8p+1``: exact, and no longer than it must be."""
    return _ZEROS.sub("", number.hex(), count=1) if math.isfinite(number) else str(number)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A row of numbers. ``numbers``: all of them, None where there are too many.

    Of many: how many, a digest of their bits, the largest by size with its place, and the sum of
    each times its place, so that a small one that changes shows as well.
    """

    numbers: tuple[float, ...] | None
    count: int = 0
    digest: str = ""
    place: int = 0
    largest: float = 0.0
    moment: float = 0.0

    @staticmethod
    def of(numbers: Sequence[float], most: int = IN_FULL) -> Pinned:
        """In full up to ``most`` of them."""
        if len(numbers) <= most:
            return Pinned(tuple(numbers), len(numbers))
        bits = b"".join(struct.pack("<d", math.nan if x != x else x) for x in numbers)
        place = max(range(len(numbers)), key=lambda i: _size(numbers[i]))
        digest = sha256(bits).hexdigest()[:_DIGEST]
        return Pinned(None, len(numbers), digest, place, numbers[place], moment(numbers))

    def __str__(self) -> str:
        if self.numbers is not None:
            return ",".join(map(hexadecimal, self.numbers)) or "none"
        largest, moment = hexadecimal(self.largest), hexadecimal(self.moment)
        return f"{self.count}:{self.digest}:{self.place}:{largest}:{moment}"

    @staticmethod
    def read(text: str) -> Pinned:
        """What was written; raises ValueError for anything else."""
        if text == "none":
            return Pinned(())
        if ":" not in text:
            numbers = tuple(map(float.fromhex, text.split(",")))
            return Pinned(numbers, len(numbers))
        count, digest, place, largest, total = text.split(":")
        if len(digest) != _DIGEST or not 0 <= int(place) < int(count):
            raise ValueError(text)
        wide = map(float.fromhex, (largest, total))
        return Pinned(None, int(count), digest, int(place), *wide)


def moment(numbers: Sequence[float]) -> float:
    """Each times its place, from 1 on, rounded once; NaN where one is not finite."""
    if not all(map(math.isfinite, numbers)):
        return math.nan
    return math.fsum(x * (i + 1) for i, x in enumerate(numbers))


def _size(number: float) -> float:
    return math.inf if number != number else abs(number)


@dataclass(frozen=True, slots=True)
class Entry:
    """What came of one case: numbers by name, or how the ranks failed instead."""

    values: Mapping[str, Pinned] = field(default_factory=dict)
    fault: str = ""
    """Its kind, and the type of the exception."""

    def __str__(self) -> str:
        if self.fault:
            return f"fault={quote(self.fault)}"
        return " ".join(f"{quote(name)}={numbers}" for name, numbers in self.values.items())


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which entry it is; its words stand at the beginning of a line, in this order."""

    mode: str
    case: str
    layout: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.mode} {self.case} {self.layout} {self.dtype}"


def broken(where: str, line: str) -> InputError:
    """The error for a line that none of ours is."""
    return InputError(f"{where}: not a line of a snapshot: {line!r:.200}; record it again")
