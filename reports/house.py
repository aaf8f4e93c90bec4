"""How the house stands: ``python reports/house.py [CHECKOUT]`` prints lines per room and arrows.

A room is a folder of ``aggverify`` (a file at its top stands for itself); an arrow is one room that
imports another, counted once however many files do. Read as text: nothing of the checkout runs.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
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


def main(root: Path) -> None:
    """Print one table of a checkout."""
    files: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    longest: dict[str, int] = defaultdict(int)
    found = list(sources(root))
    rooms = {room for room, _ in found}
    arrows: dict[str, set[str]] = {room: set() for room in rooms}
    for room, path in found:
        count = len(path.read_text(encoding="utf-8").splitlines())
        files[room] += 1
        lines[room] += count
        longest[room] = max(longest[room], count)
        arrows[room] |= set(imported(path, rooms)) - {room}
    print("| room | files | lines | longest file | imports |\n|---|---|---|---|---|")
    for room in sorted(rooms, key=lambda name: -lines[name]):
        to = ", ".join(sorted(arrows[room]))
        print(f"| {room} | {files[room]} | {lines[room]} | {longest[room]} | {to} |")
    total = sum(map(len, arrows.values()))
    print(
        f"| **all {len(rooms)}** | {sum(files.values())} | {sum(lines.values())} | "
        f"{max(longest.values())} | {total} arrows |"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]))
