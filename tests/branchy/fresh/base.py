"""How a reducer of this folder is written down: as one of ``unread``, and what is true of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.branchy.unread.base import Unread
from tests.branchy.unread.witness import Witness


@dataclass(frozen=True, slots=True)
class Fresh(Unread):
    """One reducer: right, or wrong on the witness."""

    causes: frozenset[str] = frozenset()
    """Codes, and known bugs by their names, each of which says what is wrong."""


def wrong(target: str, mode: str, met: str, witness: Witness, causes: str) -> Fresh:
    return Fresh(_path(target), mode, met, witness=witness, causes=frozenset(causes.split()))


def right(target: str, mode: str, met: str) -> Fresh:
    return Fresh(_path(target), mode, met)


def _path(target: str) -> str:
    return f"tests.branchy.fresh.{target}"
