"""Where in the source a reducer is defined; read as text, nothing is imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from aggverify.files import is_path, resolved, split

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Place:
    """A file and a line in it, from 1."""

    file: Path
    line: int


def place(target: str, function: str, start: Path) -> Place | None:
    """Return where a target's function is defined, else its file's syntax error, else line 1.

    A module is looked for below ``start`` and ``start/src``; None where that finds no file.
    """
    head, _ = split(target)
    try:
        file = resolved(Path(head)) if is_path(head) else _module(head, start)
        if file is None or not file.is_file():
            return None
    except (OSError, ValueError):  # too long a name, or one with a null byte
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        return Place(file, error.lineno or 1)
    except (OSError, ValueError, RecursionError):
        return Place(file, 1)
    return Place(file, max(_lines(tree, function), default=1))


def _lines(tree: ast.Module, name: str) -> list[int]:
    """Lines that bind the name outside any function or class, the last of which counts."""
    lines = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _SCOPES):
            names = {node.name}
        else:
            children = list(ast.iter_child_nodes(node))
            pending += children
            names = set(filter(None, map(_bound, children)))
        if name in names and isinstance(node, ast.stmt):
            lines.append(node.lineno)
    return lines


def _bound(node: ast.AST) -> str | None:
    """Return the name that a part of an assignment or an import binds."""
    if isinstance(node, ast.alias):
        return node.asname or node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return None


def _module(name: str, start: Path) -> Path | None:
    parts = name.split(".")
    for root in (start, start / "src"):
        for path in (
            root.joinpath(*parts).with_suffix(".py"),
            root.joinpath(*parts, "__init__.py"),
        ):
            if path.is_file():
                return path.resolve()
    return None
