"""Classes of documents as plain JSON data, and back again with every value checked by msgspec."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from functools import cache
from itertools import repeat
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta

from aggverify import escape
from aggverify.errors import InputError, shown, unknown

LARGEST = (1 << 63) - 1
HEX = r"-?(0x[01](\.[0-9a-f]{1,13})?p[+-]\d{1,4}|inf)|nan"
FRACTION = r"-?\d{1,4000}(/\d{1,4000})?"
Integer = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, "lines"]
"""A text of several lines; a plain ``str`` is one line."""
Case = Annotated[Mapping[str, Any], Meta(extra_json_schema={"$ref": "case.json"})]
Claim = Annotated[Mapping[str, Any], Meta(extra_json_schema={"$ref": "case.json#/$defs/claim"})]
Fault = Annotated[Mapping[str, Any], Meta(extra_json_schema={"$ref": "fault.json"})]
"""JSON values that have readers and schemas of their own, kept as they are and never shown."""
_FOREIGN = (Case, Claim, Fault)
T = TypeVar("T")
if TYPE_CHECKING:
    Double = float
else:

    class _Floats(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, float)

    class Double(metaclass=_Floats):
        """A float that JSON has as the text of ``float.hex``, which is exact."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of a document: its fields are the keys, and the reader's and the schema's rules."""


def plain(value: Any) -> Any:
    """JSON data of a value of a document: floats in hex and fractions as text, so all are exact."""
    if isinstance(value, Part):
        return {
            name: getattr(value, name) if kind in _FOREIGN else plain(getattr(value, name))
            for name, kind in _kinds(type(value)).items()
        }
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(map(plain, value))
    if isinstance(value, float):
        return value.hex()
    return str(value) if isinstance(value, Fraction | StrEnum) else value


def sanitize(value: T, kind: Any = str) -> T:
    """Return the same with every text escaped (``aggverify.escape``), as it is shown to people."""
    found: Any = value
    if isinstance(value, Part):
        kinds = _kinds(type(value)).items()
        found = type(value)(**{name: sanitize(getattr(value, name), k) for name, k in kinds})
    elif isinstance(value, Mapping) and kind not in _FOREIGN:
        found = {escape.line(key): sanitize(inner) for key, inner in value.items()}
    elif isinstance(value, tuple):
        found = tuple(map(sanitize, value))
    elif isinstance(value, str) and not isinstance(value, StrEnum):
        found = (escape.clean if kind == Text else escape.line)(value)
    return cast(T, found)


def read(kind: type[T], data: object, where: str) -> T:
    """Return the value of ``kind`` that ``data`` is.

    Raises InputError naming the place that is wrong.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_made)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        refused = error  # half a surrogate pair is a key or a name of nothing
    for part, value, place in _parts(kind, data, where):
        read(part, value, f"{where}{place}")
    if isinstance(refused.__cause__, InputError):
        raise InputError(f"{where}: {refused.__cause__}") from None
    raise InputError(f"{where} must be {_what(kind, data)}, got {shown(data)}")


def _made(kind: Any, data: Any) -> Any:
    pattern, make = (HEX, float.fromhex) if kind is Double else (FRACTION, Fraction)
    if not isinstance(data, str) or not re.fullmatch(pattern, data):
        raise ValueError(data)
    try:
        return make(data)
    except (OverflowError, ZeroDivisionError):
        raise ValueError(data) from None


def _parts(kind: Any, data: Any, where: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield what a value consists of.

    Raises InputError for keys that it must not have, or lacks.
    """
    kind = _one(kind)
    inner = get_args(kind)
    if _has_fields(kind) and isinstance(data, dict):
        known = {field.name: field for field in msgspec.structs.fields(kind)}
        if "schema" in known:  # of another version, whatever else there is
            yield known["schema"].type, data.get("schema"), ".schema"
        for key in data:
            if key not in known and kind.__struct_config__.forbid_unknown_fields:
                raise unknown(f"key of {where}", key, known)
        missing = [name for name, field in known.items() if field.required and name not in data]
        if missing:
            raise InputError(f"{where} lacks {', '.join(missing)}")
        yield from ((f.type, data[name], f".{name}") for name, f in known.items() if name in data)
    elif get_origin(kind) is tuple and isinstance(data, list):
        kinds = repeat(inner[0]) if inner[-1] is Ellipsis else inner
        yield from ((k, x, f"[{n}]") for n, (k, x) in enumerate(zip(kinds, data, strict=False)))
    elif get_origin(kind) is Mapping and isinstance(data, dict):
        yield from ((inner[1], value, f".{key:.80}") for key, value in data.items())


def _what(kind: Any, data: object) -> str:
    """Return what a value must be, as in "text"."""
    kind, *more = get_args(kind) if get_origin(kind := _one(kind)) is Annotated else (kind,)
    if kind is int and more:
        least, most = more[0].ge, more[0].le
        if most == LARGEST:
            return "an integer of at most 64 bits" if type(data) is int else "an integer"
        return f"an integer {f'of at least {least}' if most is None else f'from {least} to {most}'}"
    if kind in _WORDS:
        return _WORDS[kind]
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return " or ".join(repr(getattr(x, "value", x)) for x in get_args(kind) or kind)
    if get_origin(kind) is tuple:
        return "a list" if get_args(kind)[-1] is Ellipsis else f"a list of {len(get_args(kind))}"
    return "an object"


_WORDS = {
    str: "text",
    bool: "true or false",
    int: "an integer",
    int | float: "a number",
    Double: "a double in hex",
    Fraction: "a fraction",
}


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Part)


def _one(kind: Any) -> Any:
    """Return the type without a None that it may be."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(k for k in get_args(kind) if k is not type(None))]  # noqa: UP007


@cache
def _kinds(kind: type[Any]) -> Mapping[str, Any]:
    return {field.name: _one(field.type) for field in msgspec.structs.fields(kind)}


def schema(title: str, kind: type) -> str:
    """Return the JSON schema of what ``plain`` writes, as it is shipped."""
    found = msgspec.json.schema(kind, schema_hook=_texts)
    for one in found["$defs"].values():
        one["description"] = " ".join(one.pop("description").split())
    dialect = "https://json-schema.org/draft/2020-12/schema"
    written = json.dumps({"title": title, "$schema": dialect, **found}, indent=2) + "\n"
    # Parts of a document, not of a run: readers generate code from their names.
    return re.sub(r'"((?:#/\$defs/)?\w+)Record"', r'"\1"', written)


def _texts(kind: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^({HEX if kind is Double else FRACTION})$"}
