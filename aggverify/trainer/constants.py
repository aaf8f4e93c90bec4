"""The code of a reducer and of what it calls in its own package; the numbers and dtypes it names.

Runs in a template process.

Read from compiled code, where a constant expression is a number already, and from what its globals
and defaults hold: numbers, and tables of a fixed size.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

MOST = 24
"""Numbers that are reported: a table of them is no threshold."""
_DTYPES = {
    "bfloat16": ("bfloat16",),
    "float16": ("float16", "half"),
    "float32": ("float32",),
    "float64": ("float64", "double"),
}
"""By what names; ``float`` is written everywhere."""
_LARGEST = {"int8": 127, "uint8": 255, "byte": 255, "int16": 32767, "short": 32767, "uint16": 65535}
"""Integers that a step's counts and places may be too large for."""
_DEEPEST, _MOST_FUNCTIONS, _MOST_MEMBERS = 6, 200, 16
"""Levels and functions that are read; members of a container, which is a table from there on."""


def constants(function: Callable[..., Any]) -> list[float]:
    """Return positive numbers other than 1, the nearest to the function first; never raises.

    Also the largest of small integer types that it names.
    """
    found: dict[float, None] = {}
    with suppress(Exception):  # an object whose attributes raise
        for value in _Reading(_package(function)).of(function):
            if _is_usable(value):
                found.setdefault(abs(value))
            if len(found) == MOST:
                break
        words = _named(_whole(function))
        found |= dict.fromkeys(n for name, n in _LARGEST.items() if name in words)
    return list(found)


def codes(function: Callable[..., Any]) -> list[CodeType]:
    """Return the code of a function and of what it calls in its own package; never raises."""
    return _whole(function).codes


def dtypes(function: Callable[..., Any]) -> list[str]:
    """Return the dtypes of losses that its code names, by their own names, however it does.

    Never raises.
    """
    words = _named(_whole(function))
    return [dtype for dtype, names in _DTYPES.items() if words.intersection(names)]


def _whole(function: Callable[..., Any]) -> _Reading:
    reading = _Reading(_package(function))
    with suppress(Exception):  # an object whose attributes raise
        for _ in reading.of(function):
            pass
    return reading


def _named(reading: _Reading) -> set[str]:
    return {word for code in reading.codes for word in _words(code)} | reading.dtypes


def _words(code: CodeType) -> Iterator[str]:
    """Yield the names in a code, and its texts without ``torch.``."""
    yield from code.co_names
    texts = [const for const in code.co_consts if isinstance(const, str)]
    yield from (text.removeprefix("torch.") for text in texts)


def _is_usable(value: float) -> bool:
    return math.isfinite(value) and abs(value) not in (0, 1) and abs(value) < 2**63


def _package(value: Any) -> str:
    while isinstance(value, functools.partial):
        value = value.func
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


class _Reading:
    """One walk over a function and what it reaches; everything is read once."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._seen: set[int] = set()
        self._functions = 0
        self.codes: list[CodeType] = []
        self.dtypes: set[str] = set()
        """Those that something else than code holds."""

    def of(self, function: Any) -> Iterator[float]:
        """Breadth first: its own numbers, then those of what it calls."""
        level: list[Any] = [function]
        for _ in range(_DEEPEST):
            inner: list[Any] = []
            for value in level:
                yield from self._read(value, inner)
            level = inner

    def _read(self, value: Any, inner: list[Any]) -> Iterator[float]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value
            return
        if id(value) in self._seen or value is None or isinstance(value, str | bytes | bool):
            return
        self._seen.add(id(value))
        if type(value).__name__ == "dtype":
            self.dtypes.add(str(value).removeprefix("torch."))
            return
        if (size := _size_of_table(value)) is not None:
            yield size
        elif isinstance(value, tuple | list | set | frozenset):
            inner += value
        elif isinstance(value, Mapping):
            inner += (*value, *value.values())
        elif isinstance(value, CodeType):
            inner += (const for const in value.co_consts if const is not None)
        else:
            yield from self._called(value, inner)

    def _called(self, value: Any, inner: list[Any]) -> Iterator[float]:
        """Yield a function's own numbers; what a value leads to is added to ``inner``."""
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, functools.partial):
            inner += (value.func, value.args, value.keywords)
        elif isinstance(value, MethodType):
            inner += (value.__func__, value.__self__)
        elif isinstance(value, FunctionType):
            if self._functions < _MOST_FUNCTIONS and self._is_own(value):
                self._functions += 1
                yield from self._function(value, inner)
        elif isinstance(value, type):
            if self._is_own(value):  # without what Python writes there: from 3.13 a line number
                inner += (v for k, v in vars(value).items() if k != "__firstlineno__")
        elif not isinstance(value, ModuleType) and self._is_own(type(value)):
            inner += vars(value).values() if hasattr(value, "__dict__") else ()
            inner.append(type(value))

    def _function(self, function: FunctionType, inner: list[Any]) -> Iterator[float]:
        code, known = function.__code__, function.__globals__
        self.codes += _codes(code)
        for const in code.co_consts:
            yield from self._read(const, inner)
        inner += (function.__defaults__, function.__kwdefaults__)
        inner += _cells(function)
        names = {name for each in _codes(code) for name in each.co_names}
        for name in sorted(names & known.keys()):
            value = known[name]
            if isinstance(value, ModuleType) and _package_of_module(value) == self._package:
                inner += [vars(value)[n] for n in sorted(names & vars(value).keys())]
            else:
                inner.append(value)

    def _is_own(self, value: Any) -> bool:
        return _package(value) == self._package


def _size_of_table(value: Any) -> int | None:
    """Return what ids, places and lengths must stay below; None for what is no such table.

    A table is a tensor, an array, a bounded queue, or more members than are looked at one by one.
    """
    if isinstance(value, deque) and value.maxlen is not None:
        return value.maxlen
    if type(value).__name__ in ("Tensor", "Parameter", "ndarray"):
        return int(max(value.shape)) if value.shape else None
    if isinstance(value, Collection) and not isinstance(value, str):
        return len(value) if len(value) > _MOST_MEMBERS else None
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _package_of_module(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]
