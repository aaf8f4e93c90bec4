"""How an untuned reducer is written down: its mode, whether it is right, where it is met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.branchy.parts import Reducer

R = TypeVar("R", bound=Reducer)


@dataclass(frozen=True, slots=True)
class Untuned:
    """One reducer: right, or wrong on one branch."""

    target: str
    mode: str
    met: str
    """Where such code is met, and why a person writes it."""
    missed: str = ""
    """Why a wrong one is not found."""

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2]


WRONG: list[Untuned] = []
RIGHT: list[Untuned] = []


def wrong(mode: str, met: str, missed: str = "") -> Callable[[R], R]:
    return _entry(WRONG, mode, met, missed)


def right(mode: str, met: str) -> Callable[[R], R]:
    return _entry(RIGHT, mode, met)


def _entry(table: list[Untuned], mode: str, met: str, missed: str = "") -> Callable[[R], R]:
    def put(function: R) -> R:
        target = f"{function.__module__}:{function.__name__}"
        table.append(Untuned(target, mode, met, missed))
        return function

    return put
