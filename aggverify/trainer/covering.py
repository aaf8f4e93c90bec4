"""Which lines of the candidate's own file a step runs; and which lines its functions have."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from aggverify.steps.case import Case

MOST_LINES = 5000
"""Of a file that is looked at: a larger one is no reducer's."""
FIRST = 50
"""Ordinary cases of each rank whose lines are noted."""
_FEW, _FEW_TOKENS, _LARGE = 4, 64, 1e9
Functions = list[tuple[str, list[int]]]


class Covering:
    """Notes lines of one file, in a rank. Another tool's tracing is left alone."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._lines: set[int] = set()
        self._cases: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def noting(self, case: Case, subject: tuple[str, ...] = ()) -> Iterator[None]:
        """Note what runs in a ``with``: of every case that is out of the ordinary, and of a
        subject's first ordinary ones, which take the same lines again and again."""
        self._lines = set()
        self._cases[subject] += 1
        wanted = self._cases[subject] <= FIRST or not _is_ordinary(case)
        if self._file is None or not wanted or sys.gettrace() is not None:
            yield
            return
        sys.settrace(self._entered)
        try:
            yield
        finally:
            if sys.gettrace() == self._entered:
                sys.settrace(None)

    @property
    def lines(self) -> tuple[int, ...]:
        """Those of the last ``with``."""
        return tuple(sorted(self._lines))

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._ran if frame.f_code.co_filename == self._file else None

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._lines.add(frame.f_lineno)
        return self._ran


def _is_ordinary(case: Case) -> bool:
    """Whether it is small, and nothing in it is masked whole, rejected, huge or no number."""
    step, layout = case.step, case.layout
    return (
        len(case.losses) <= _FEW_TOKENS
        and layout.num_microbatches <= _FEW
        and len(step.samples) <= 2 * _FEW
        and case.dtype in ("float64", "float32")
        and all(s.num_unmasked and s.original_mask is None for s in step.samples)
        and all(-_LARGE < loss < _LARGE for loss in case.losses)
    )


def functions(module: ModuleType) -> Functions:
    """The functions and methods of its file with the lines of their bodies, those within them
    included; without lines that only raise. Nothing where there is no source."""
    file = getattr(module, "__file__", None)
    try:
        source = Path(str(file)).read_text(encoding="utf-8")
        if source.count("\n") > MOST_LINES:
            return []
        refusing = set(_refusing(ast.parse(source)))
        return list(_functions(compile(source, str(file), "exec"), refusing))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []


def _functions(code: CodeType, refusing: set[int]) -> Iterator[tuple[str, list[int]]]:
    for inner in _inside(code):
        if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function's, not a class's
            lines = sorted(set(_lines(inner)) - refusing)
            if lines:
                yield inner.co_qualname, lines
        else:
            yield from _functions(inner, refusing)


def _inside(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _lines(code: CodeType) -> Iterator[int]:
    if not code.co_name.startswith("<"):  # those of a comprehension are its statement's
        yield from {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
    for inner in _inside(code):
        yield from _lines(inner)


def _refusing(tree: ast.Module) -> Iterator[int]:
    """Lines of statements that raise, and of assertions that do not fail."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
        elif isinstance(node, ast.FunctionDef) and node.decorator_list:
            yield from range(node.decorator_list[0].lineno, node.lineno + 1)
