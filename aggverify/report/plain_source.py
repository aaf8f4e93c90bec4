"""A reducer's source and that of the functions it names, read without running any of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from aggverify.files import contents, is_path

_MOST_FILES, _MOST_BYTES = 64, 1_000_000
_OURS = "aggverify"
"""No reducer's own, where this package lies in the working directory."""


def functions(head: str, name: str) -> tuple[str, ...] | None:
    """The text of a function and of all that it calls, classes whole, in its own file or module and
    in those that lie beside it and are imported; None where there is none of that name."""
    known: dict[str, list[tuple[str, ast.AST]]] = defaultdict(list)
    for text, tree in _files(_first(head)):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                part = ast.get_source_segment(text, node, padded=True) or ""
                known[node.name].append((part, node))
    wanted, found = [name.rpartition(".")[2]], dict[str, None]()
    while wanted:
        for text, node in known.pop(wanted.pop(), ()):
            found[text] = None
            inside = list(ast.walk(node))
            wanted += [n.id for n in inside if isinstance(n, ast.Name)]
            wanted += [n.attr for n in inside if isinstance(n, ast.Attribute)]
    return tuple(found) or None


def imports(head: str, package: str) -> bool:
    """Whether a file or module, or one beside it that it imports, imports the package."""
    named = (name for _, tree in _files(_first(head)) for name in _imported(tree))
    return any(name.split("/")[0] == package for name in named)


def _first(head: str) -> Path:
    return Path(head if is_path(head) else f"{head.replace('.', '/')}.py")


def _files(first: Path) -> Iterator[tuple[str, ast.Module]]:
    """A file and what it imports, as far as that lies beside it or in the working directory."""
    wanted, seen = [first], set[Path]()
    while wanted and len(seen) < _MOST_FILES:
        path = wanted.pop(0)
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        try:
            text = contents(path, _MOST_BYTES).decode()
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        yield text, tree
        for module in (name for name in _imported(tree) if name.split("/")[0] != _OURS):
            for folder in (path.parent, Path()):
                wanted += [folder / f"{module}.py", folder / module / "__init__.py"]


def _imported(tree: ast.Module) -> Iterator[str]:
    """Paths, without their endings, of what may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (word.name.replace(".", "/") for word in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = "../" * max(node.level - 1, 0) + (node.module or "").replace(".", "/")
            yield inside
            yield from (f"{inside}/{word.name}".lstrip("/") for word in node.names)
