"""How a reducer of this folder is written down: an entry as in ``untuned``, and what shows it.

The tables stand apart from the reducers, so that no number of a witness is in a reducer's own file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.branchy.unread.witness import Witness
from tests.branchy.untuned.base import Untuned


@dataclass(frozen=True, slots=True)
class Unread(Untuned):
    """One reducer: right, or wrong on the witness."""

    witness: Witness | None = None


def wrong(target: str, mode: str, met: str, witness: Witness) -> Unread:
    return Unread(f"tests.branchy.unread.{target}", mode, met, witness=witness)


def right(target: str, mode: str, met: str) -> Unread:
    return Unread(f"tests.branchy.unread.{target}", mode, met)
