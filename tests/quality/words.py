"""What people read of this project, line by line; ``python -m tests.quality.words`` runs codespell
with our own dictionary of retired words over it, as ``tox -e lint`` does.

Of Python: strings that are no docstrings, and docstrings of commands (their help). Of TOML: values.
Of Markdown: all but code. Of templates: all, of scripts comments.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aggverify"
RETIRED = ROOT / "retired-words.txt"
MARKDOWN = [
    path
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "changes").glob("*.md"),
    )
    if not path.name.startswith("AGV")  # made from the code
]
_CODE = re.compile(r"^ *(```+).*?^ *\1 *$|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
_TEMPLATED = re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)
_NOT_WORDS = frozenset({"reducer", "against_reducer", "step", "mutant", "says", "micro_batches"})
"""Keys whose values are code or patterns."""

Line = tuple[int, str]


@cache
def seen() -> list[tuple[Path, list[Line]]]:
    """Every file that people read something of, with its lines."""
    return list(_seen())


def _seen() -> Iterator[tuple[Path, list[Line]]]:
    for path in MARKDOWN:
        yield path, prose(path)
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix == ".py":
            yield path, list(strings(path))
        elif path.suffix == ".toml":
            yield path, [(1, text) for text in values(tomllib.loads(path.read_text("utf-8")))]
        elif path.suffix in (".j2", ".html"):
            text = _TEMPLATED.sub("CODE", path.read_text("utf-8"))
            comments = path.name.endswith(".py.j2")
            lines = (line.partition("#")[2] if comments else line for line in text.splitlines())
            yield path, list(enumerate(lines, 1))


def prose(path: Path) -> list[Line]:
    """Its lines without code and without where links lead."""
    text = path.read_text(encoding="utf-8")
    bare = _CODE.sub(lambda code: "\n" * code[0].count("\n") or "CODE", text)
    return list(enumerate(bare.splitlines(), 1))


def strings(path: Path) -> Iterator[Line]:
    """Strings of more than a word that are no docstrings, and the help of commands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(text) for node in ast.walk(tree) for text in _statements(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and _is_command(node):
            yield node.lineno, ast.get_docstring(node) or ""
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
            and " " in node.value.strip()
            and not is_code(node.value)
        ):
            yield node.lineno, node.value


def is_code(text: str) -> bool:
    """Whether it is a part of a script that is written out."""
    try:
        tree = ast.parse(re.sub(r"\{\w*\}", "x", textwrap.dedent(text).lstrip("*")))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Assign) for node in ast.walk(tree))


def _statements(node: ast.AST) -> Iterator[ast.expr]:
    body = getattr(node, "body", None)
    for line in body if isinstance(body, list) else ():
        if isinstance(line, ast.Expr):
            yield line.value


def _is_command(function: ast.FunctionDef) -> bool:
    return any(
        "click." in ast.unparse(d) or ".command" in ast.unparse(d) for d in function.decorator_list
    )


def values(found: Any, key: str = "") -> Iterator[str]:
    """Texts in what a TOML file holds."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from values(value, name)
    elif isinstance(found, list):
        for value in found:
            yield from values(value, key)
    elif isinstance(found, str) and key not in _NOT_WORDS:
        yield found


def retired() -> list[str]:
    """What codespell finds: place, word and replacement."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n, (path, lines) in enumerate(seen()):
            text = "".join(
                f"{path.relative_to(ROOT)}:{at}: {' '.join(t.split())}\n" for at, t in lines
            )
            (folder / f"{n}.txt").write_text(text, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "codespell_lib",
            "-D",
            str(RETIRED),
            "-q",
            "4",
            str(folder),
        ]
        ran = subprocess.run(command, capture_output=True, text=True)
        found = []
        for line in ran.stdout.splitlines():
            file, at, word = line.split(":", 2)
            place = Path(file).read_text(encoding="utf-8").splitlines()[int(at) - 1]
            found.append(f"{word.strip()} in {place:.160}")
        return found


if __name__ == "__main__":
    sys.exit("\n".join(retired()) or 0)
