"""How the house stands: ``python reports/house.py [CHECKOUT [LATER]]`` prints lines per room and
arrows, of two checkouts beside each other.

A room is a folder of ``aggverify`` (a file at its top stands for itself); an arrow is one room that
imports another, counted once however many files do. Read as text: nothing of the checkout runs.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SKIPPED = {".venv", "__pycache__"}


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Room and path of every Python file of the product."""
    for package in ("aggverify", "oracles"):
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root / package).parts
            if SKIPPED & set(parts) or (package == "aggverify" and parts[0] == "oracles"):
                continue  # aggverify/oracles may be a link to what is counted by itself
            inside = parts[0].removesuffix(".py") if package == "aggverify" else ""
            yield inside or package, path


def imported(path: Path, rooms: set[str]) -> Iterator[str]:
    """Rooms that a file imports, by absolute name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            head, *_ = name.removeprefix("aggverify.").split(".")
            if head in rooms and (name.startswith("aggverify.") or name.split(".")[0] == "oracles"):
                yield head


@dataclass(frozen=True, slots=True)
class Room:
    """What one room has."""

    files: int = 0
    lines: int = 0
    longest: int = 0
    imports: frozenset[str] = frozenset()


def rooms_of(root: Path) -> dict[str, Room]:
    """Every room of a checkout by its name, and its tests as one."""
    found = list(sources(root))
    names = {room for room, _ in found}
    made: dict[str, Room] = defaultdict(Room)
    for room, path in found:
        made[room] = _with(made[room], path, frozenset(imported(path, names)) - {room})
    for path in sorted((root / "tests").rglob("*.py")):
        made["tests"] = _with(made["tests"], path, frozenset())
    return made


def _with(room: Room, path: Path, imports: frozenset[str]) -> Room:
    count = len(path.read_text(encoding="utf-8").splitlines())
    longest = max(room.longest, count)
    return Room(room.files + 1, room.lines + count, longest, room.imports | imports)


def one(rooms: Mapping[str, Room]) -> Iterator[str]:
    """A table of one checkout, the largest room first."""
    yield "| room | files | lines | longest file | imports |\n|---|---|---|---|---|"
    for name, room in sorted(rooms.items(), key=lambda pair: -pair[1].lines):
        to = ", ".join(sorted(room.imports))
        yield f"| {name} | {room.files} | {room.lines:,} | {room.longest} | {to} |"


def two(before: Mapping[str, Room], after: Mapping[str, Room]) -> Iterator[str]:
    """A table of two: files, lines and arrows of both, and how many lines less."""
    yield "| room | files | lines | imports | lines less |\n|---|---|---|---|---|"
    for name in sorted({*before, *after}, key=lambda name: (name == "tests", name)):
        yield _compared(name, before.get(name, Room()), after.get(name, Room()))
    product = [[room for name, room in side.items() if name != "tests"] for side in (before, after)]
    whole = [Room(sum(r.files for r in side), sum(r.lines for r in side)) for side in product]
    arrows = [sum(len(r.imports) for r in side) for side in product]
    less = whole[0].lines - whole[1].lines
    yield (
        f"| product | {whole[0].files} → {whole[1].files} | {whole[0].lines:,} → "
        f"{whole[1].lines:,} | {arrows[0]} → {arrows[1]} | {less:,} |"
    )


def _compared(name: str, was: Room, now: Room) -> str:
    imports = f"{len(was.imports)} → {len(now.imports)}"
    return (
        f"| {name} | {was.files} → {now.files} | {was.lines:,} → {now.lines:,} | {imports} | "
        f"{was.lines - now.lines:,} |"
    )


def main(roots: Sequence[str]) -> None:
    """Print the table of a checkout, or of two."""
    read = [rooms_of(Path(root)) for root in roots or [Path(__file__).parents[1]]]
    print("\n".join(two(*read) if len(read) > 1 else one(*read)))


if __name__ == "__main__":
    main(sys.argv[1:])
