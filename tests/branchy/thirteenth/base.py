"""How a reducer of this folder is written down: as one of ``fresh``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness


def wrong(target: str, mode: str, met: str, witness: Witness, causes: str) -> Fresh:
    return Fresh(_path(target), mode, met, witness=witness, causes=frozenset(causes.split()))


def right(target: str, mode: str, met: str) -> Fresh:
    return Fresh(_path(target), mode, met)


def _path(target: str) -> str:
    return f"tests.branchy.thirteenth.{target}"
