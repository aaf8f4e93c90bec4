"""An adapter's own code as a part of the script of a finding: its file but what it declares."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Code:
    """What the file has beside its declaration, and what it asks of its batch."""

    source: str
    texts: tuple[str, ...] | None
    """None where it calls its batch something else."""


@lru_cache(maxsize=16)
def code_of(path: str) -> Code:
    """Of an adapter that was read before."""
    text = Path(path).read_text("utf-8")
    lines = text.split("\n")
    kept: list[str] = []
    named = False
    for node in ast.parse(text).body:
        if _is_declared(node):
            continue
        kept += lines[node.lineno - 1 - len(getattr(node, "decorator_list", ())) : node.end_lineno]
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            named = [a.arg for a in node.args.args][2:3] == [_BATCH]
    source = "\n".join(kept)
    return Code(source, (source,) if named else None)


def _is_declared(node: ast.stmt) -> bool:
    """The docstring, ``from __future__``, and ADAPTER itself."""
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == "ADAPTER" for t in node.targets)
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
