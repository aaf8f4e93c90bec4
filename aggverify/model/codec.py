"""Frozen dataclasses as plain JSON data, back again with every value checked, and their schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aggverify import escape
from aggverify.errors import InputError, unknown

Text = Annotated[str, "lines"]
"""A text of several lines; a plain ``str`` is one line."""
Case = Annotated[object, "case.json"]
Claim = Annotated[object, "case.json#/$defs/claim"]
Fault = Annotated[object, "fault.json"]
"""JSON values that have readers and schemas of their own, kept as they are and never shown."""
T = TypeVar("T")

HEX = r"-?(0x[01](\.[0-9a-f]{1,13})?p[+-]\d{1,4}|inf)|nan"
"""A double, exactly: the text of ``float.hex``."""
FRACTION = r"-?\d{1,4000}(/\d{1,4000})?"
LARGEST = 1 << 63


def plain(value: Any) -> Any:
    """JSON data of a value of the model: floats in hex and fractions as text, so all are exact."""
    if is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        return {
            name: getattr(value, name) if _is_foreign(hint) else plain(getattr(value, name))
            for name, hint in hints.items()
        }
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(map(plain, value))
    if isinstance(value, float):
        return value.hex()
    return str(value) if isinstance(value, Fraction | StrEnum) else value


def read(kind: type[T], data: object, where: str, *, harmless: bool = False) -> T:
    """The value of ``kind`` that ``data`` is; raises InputError naming the place that is wrong.

    ``harmless``: every text escaped (``aggverify.escape``), as it is shown to people.
    """
    found: T = _read(kind, data, where, harmless)
    return found


def _read(kind: Any, data: Any, where: str, harmless: bool) -> Any:
    inner = get_args(kind)
    if _is_foreign(kind):
        _expect(isinstance(data, dict), "an object", data, where)
        return data
    if kind in (str, Text):
        _expect(isinstance(data, str), "text", data, where)
        return (escape.line if kind is str else escape.clean)(data) if harmless else data
    if get_origin(kind) in (Union, UnionType):
        (one,) = (k for k in inner if k is not type(None))
        return None if data is None else _read(one, data, where, harmless)
    if get_origin(kind) is Literal:
        same = any(data == value and type(data) is type(value) for value in inner)
        _expect(same, " or ".join(map(repr, inner)), data, where)
        return data
    if get_origin(kind) is tuple:
        _expect(isinstance(data, list), "a list", data, where)
        if inner[-1] is not Ellipsis:
            _expect(len(data) == len(inner), f"a list of {len(inner)}", data, where)
            return tuple(_read(k, x, where, harmless) for k, x in zip(inner, data, strict=True))
        return tuple(_read(inner[0], x, f"{where}[{n}]", harmless) for n, x in enumerate(data))
    if get_origin(kind) is Mapping:
        _expect(isinstance(data, dict), "an object", data, where)
        names = (escape.line(key) if harmless else key for key in data)
        values = (_read(inner[1], x, f"{where}.{key:.80}", harmless) for key, x in data.items())
        return dict(zip(names, values, strict=True))
    if issubclass(kind, StrEnum):
        _expect(data in list(kind), " or ".join(map(repr, map(str, kind))), data, where)
        return kind(data)
    return (
        _object(kind, data, where, harmless) if is_dataclass(kind) else _number(kind, data, where)
    )


def _is_foreign(kind: Any) -> bool:
    return get_origin(kind) is Annotated and get_args(kind)[0] is object


def _object(kind: Any, data: Any, where: str, harmless: bool) -> Any:
    hints = _hints(kind)
    _expect(isinstance(data, dict), "an object", data, where)
    for key in data:
        if key not in hints:
            raise unknown(f"key of {where}", key, hints)
    missing = [name for name in _required(kind) if name not in data]
    if missing:
        raise InputError(f"{where} lacks {', '.join(missing)}")
    values = {
        name: _read(k, data[name], f"{where}.{name}", harmless)
        for name, k in hints.items()
        if name in data
    }
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _number(kind: Any, data: Any, where: str) -> Any:
    if kind in (bool, int):
        _expect(type(data) is kind, "true or false" if kind is bool else "an integer", data, where)
        _expect(abs(data) <= LARGEST, f"an integer up to {LARGEST}", data, where)
        return data
    pattern, form = (HEX, "a double in hex") if kind is float else (FRACTION, "a fraction")
    _expect(isinstance(data, str) and re.fullmatch(pattern, data), form, data, where)
    try:
        return float.fromhex(data) if kind is float else Fraction(data)
    except (OverflowError, ZeroDivisionError):
        raise InputError(f"{where} must be {form}, got {data!r:.200}") from None


def _expect(right: object, what: str, data: object, where: str) -> None:
    if not right:
        raise InputError(f"{where} must be {what}, got {data!r:.200}")


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The type of every field; the reader, the writer and the schema follow it."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _required(kind: type) -> list[str]:
    """Fields without a default: what an older version's file lacks has one."""
    return [field.name for field in fields(kind) if field.default is MISSING]


def schema(kind: type) -> dict[str, Any]:
    """The JSON schema of what ``plain`` writes."""
    named: dict[str, Any] = {}
    top = _schema(kind, named)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **top,
        "$defs": dict(sorted(named.items())),
    }


def _schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    simple: dict[Any, dict[str, Any]] = {
        str: {"type": "string"},
        Text: {"type": "string"},
        bool: {"type": "boolean"},
        int: {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST},
        float: {"type": "string", "pattern": f"^({HEX})$"},
        Fraction: {"type": "string", "pattern": f"^{FRACTION}$"},
    }
    if kind in simple:
        return simple[kind]
    inner = get_args(kind)
    if _is_foreign(kind):
        return {"$ref": inner[1]}
    if get_origin(kind) in (Union, UnionType):
        (one,) = (k for k in inner if k is not type(None))
        return {"anyOf": [_schema(one, named), {"type": "null"}]}
    if get_origin(kind) is Literal:
        return {"enum": list(inner)}
    if get_origin(kind) is tuple and inner[-1] is not Ellipsis:
        items = [_schema(k, named) for k in inner]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _schema(inner[0], named)}
    if get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": _schema(inner[1], named)}
    if issubclass(kind, StrEnum):
        return {"enum": list(map(str, kind))}
    if kind.__name__ not in named:
        named[kind.__name__] = {}
        hints = _hints(kind)
        named[kind.__name__] = {
            "description": " ".join(kind.__doc__.split()),
            "type": "object",
            "properties": {name: _schema(k, named) for name, k in hints.items()},
            "required": _required(kind),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{kind.__name__}"}
