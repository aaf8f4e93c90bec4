"""The functions of the candidate's own file, with the lines of their bodies and its conditions."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from aggverify.trainer.conditions import Conditions

MOST_LINES = 5000
"""Of a file that is looked at: a larger one is no reducer's."""
LONGEST = 300
"""Lines of a function that are shown."""
Functions = list[tuple[str, list[int]]]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as far as it is looked at."""

    functions: Functions
    """Functions and methods with the lines of their bodies, those within them included; without
    lines that only raise."""
    conditions: Conditions
    texts: Sequence[tuple[int, list[str]]]
    """Of each of these functions, the line that it begins on and its source, line by line; none of
    a very long one."""


def read(module: ModuleType) -> SourceFile | None:
    """Return the module's file; None where there is no source."""
    file = getattr(module, "__file__", None)
    try:
        source = Path(str(file)).read_text(encoding="utf-8")
        if source.count("\n") > MOST_LINES:
            return None
        refusing = set(_refusing(ast.parse(source)))
        found = list(_functions(compile(source, str(file), "exec"), refusing))
        lines = source.split("\n")
        texts = [(code.co_firstlineno, _text(lines, code)) for code, _ in found]
        functions = [(code.co_qualname, own) for code, own in found]
        return SourceFile(functions, Conditions(source, refusing), texts)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _functions(code: CodeType, refusing: set[int]) -> Iterator[tuple[CodeType, list[int]]]:
    for inner in _inside(code):
        if inner.co_flags & inspect.CO_NEWLOCALS:  # a function's, not a class's
            lines = sorted(set(_lines(inner)) - refusing)
            if lines:
                yield inner, lines
        else:
            yield from _functions(inner, refusing)


def _text(lines: Sequence[str], code: CodeType) -> list[str]:
    first = code.co_firstlineno - 1
    own = lines[first : max(_lines(code), default=first)]
    return textwrap.dedent("\n".join(own)).split("\n") if len(own) <= LONGEST else []


def _inside(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _lines(code: CodeType) -> Iterator[int]:
    if not code.co_name.startswith("<"):  # those of a comprehension are its statement's
        yield from {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
    for inner in _inside(code):
        yield from _lines(inner)


def _refusing(tree: ast.Module) -> Iterator[int]:
    """Lines of statements that raise; and of decorators, with their ``def``, which are no body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
        elif isinstance(node, ast.FunctionDef) and node.decorator_list:
            yield from range(node.decorator_list[0].lineno, node.lineno + 1)
