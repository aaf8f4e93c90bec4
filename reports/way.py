"""The way of one value: ``python reports/way.py subject|case TARGET [OPTION...]`` runs ``aggverify
check`` on a target, and prints where a subject, or a case, goes in it.

A room is a file; its floor is its package's layer in the import contracts. A value climbs where a
function hands it to one of a higher floor: as an argument, against the imports, or as its result
where it was given one itself. Methods of its own are not counted, nor what an attribute keeps.
"""

from __future__ import annotations

import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
VALUES = {
    "subject": ("Request", "Claim", "Subject", "RunVerdict", "Document"),
    "case": ("Case", "RunSpec", "Execution"),
}
"""By what is followed, the classes that it is on its way."""
Pair = tuple[str, str]


def floors() -> dict[str, tuple[int, int]]:
    """Of every package, and of those inside one that has layers of its own, the higher the more."""
    found: dict[str, tuple[int, int]] = {}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for contract in tomllib.loads(text)["tool"]["importlinter"]["contracts"]:
        for inside in contract.get("containers", ()):
            for floor, names in enumerate(reversed(contract["layers"])):
                for name in names.split(" | "):
                    above = found.get(inside, (0, 0))[0]
                    own = (floor, 0) if inside == "aggverify" else (above, floor)
                    found[f"{inside}.{name}"] = own
    return found


class Way:
    """Where values of some classes are handed on, as the profiler sees it."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self._classes, self._floors = frozenset(classes), floors()
        self._known: dict[str, tuple[int, int]] = {}
        self.passed: dict[Pair, None] = {}
        """Caller and callee, where one is an argument."""
        self.returned: dict[Pair, None] = {}
        """Callee and caller, where one is the result."""

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not _is_ours(frame) or self._is_own(frame):
            return
        caller = frame.f_back
        while caller is not None and not _is_ours(caller):
            caller = caller.f_back
        if caller is None or _room(caller) == _room(frame):
            return
        given = any(map(self._is_one, _arguments(frame)))
        if event == "call" and given:
            self.passed[_name(caller), _name(frame)] = None
        elif event == "return" and self._is_one(result) and given:
            self.returned[_name(frame), _name(caller)] = None

    def _is_one(self, value: Any, deep: int = 2) -> bool:
        if isinstance(value, tuple | list) and deep:
            return any(self._is_one(each, deep - 1) for each in value[:2])
        return type(value).__name__ in self._classes

    def _is_own(self, frame: FrameType) -> bool:
        """Whether it is a method of such a value, or makes one."""
        named = frame.f_code.co_qualname.partition(".")[0] in self._classes
        return named or self._is_one(frame.f_locals.get("self"))

    def floor(self, name: str) -> tuple[int, int]:
        """Of a function, by the longest of its module's names that has one."""
        parts = name.partition(":")[0].split(".")
        found = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        return next((self._floors[part] for part in found if part in self._floors), (99, 0))

    def upward(self, pairs: dict[Pair, None]) -> list[Pair]:
        """Of these, those that lead to a higher floor."""
        return [(one, two) for one, two in pairs if self.floor(two) > self.floor(one)]

    def lines(self) -> Iterator[str]:
        """What was seen, in figures, and every climb by name."""
        pairs = [*self.passed, *self.returned]
        rooms = {name.partition(":")[0] for pair in pairs for name in pair}
        against, back = self.upward(self.passed), self.upward(self.returned)
        yield f"{len(rooms)} rooms, {len(self.passed)} times passed, {len(against)} of them upward"
        yield from (f"  {one} calls {two}" for one, two in against)
        yield f"{len(self.returned)} times handed back, {len(back)} of them upward"
        yield from (f"  {one} to {two}" for one, two in back)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("aggverify.")


def _room(frame: FrameType) -> str:
    return str(frame.f_globals["__name__"])


def _name(frame: FrameType) -> str:
    return f"{_room(frame)}:{frame.f_code.co_qualname}"


def _arguments(frame: FrameType) -> Iterator[Any]:
    code: CodeType = frame.f_code
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        yield frame.f_locals.get(name)


def main(value: str, arguments: list[str]) -> int:
    """Follow it, and print its way."""
    from aggverify.cli import main as command

    way = Way(VALUES[value])
    threading.setprofile(way)
    sys.setprofile(way)
    try:
        sys.argv[1:] = ["check", *arguments]
        command()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    print("\n".join(way.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
