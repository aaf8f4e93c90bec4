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
_IS_HEX, _IS_FRACTION = re.compile(HEX).fullmatch, re.compile(FRACTION).fullmatch
Integer = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, "lines"]
"""A text of several lines; a plain ``str`` is one line."""
Case = Annotated[Mapping[str, Any], Meta(extra_json_schema={"$ref": "case.json"})]
Claim = Annotated[Mapping[str, Any], Meta(extra_json_schema={"$ref": "case.json#/$defs/claim"})]
Fault = Annotated[Mapping[str, Any], Meta(extra_json_schema={"$ref": "fault.json"})]
"""JSON values that have readers and schemas elsewhere: kept as they are, and never shown."""
_KEPT_AS_IS = (Case, Claim, Fault)
T = TypeVar("T")
if TYPE_CHECKING:
    Double = float
else:

    class _IsFloat(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, float)

    class Double(metaclass=_IsFloat):
        """A float that JSON has as the text of ``float.hex``, which is exact.

        To msgspec it is a custom type, so that it asks ``_from_text`` and ``_text_schema``.
        """


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all document classes: JSON keys, reader and schema follow from its typed fields."""


def plain(value: Any) -> Any:
    """JSON data of a value of a document: floats in hex and fractions as text, so all are exact."""
    if isinstance(value, Part):
        data = {
            name: getattr(value, name) if kind in _KEPT_AS_IS else plain(getattr(value, name))
            for name, kind in _field_types(type(value)).items()
        }
        return list(data.values()) if _is_list(type(value)) else data
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
        kinds = _field_types(type(value)).items()
        found = type(value)(**{name: sanitize(getattr(value, name), k) for name, k in kinds})
    elif isinstance(value, Mapping) and kind not in _KEPT_AS_IS:
        found = {escape.line(key): sanitize(inner) for key, inner in value.items()}
    elif isinstance(value, tuple):
        found = tuple(map(sanitize, value))
    elif isinstance(value, str) and not isinstance(value, StrEnum):
        found = (escape.clean if kind == Text else escape.line)(value)
    return cast(T, found)


def read(kind: type[T], data: object, where: str) -> T:
    """Return plain JSON data as a value of ``kind``.

    Raises InputError naming the place that is wrong.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_from_text)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        refused = error  # a lone surrogate in a key is no UTF-8
    # msgspec's message is not for people: find the innermost wrong value, and name its place.
    for part, value, place in _inner_values(kind, data, where):
        read(part, value, f"{where}{place}")
    if isinstance(refused.__cause__, InputError):
        raise InputError(f"{where}: {refused.__cause__}") from None
    raise InputError(f"{where} must be {_expected(kind, data)}, got {shown(data)}")


def _from_text(kind: Any, data: Any) -> Any:
    fits, make = (_IS_HEX, float.fromhex) if kind is Double else (_IS_FRACTION, Fraction)
    if not isinstance(data, str) or not fits(data):
        raise ValueError(data)
    try:
        return make(data)
    except (OverflowError, ZeroDivisionError):
        raise ValueError(data) from None


def _inner_values(kind: Any, data: Any, where: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield type, value and place of all that a value consists of.

    Raises InputError for keys that it must not have, or lacks.
    """
    kind = _meant(kind, data)
    inner = get_args(kind)
    if _is_list(kind):
        values = data if isinstance(data, list) else ()
        each = enumerate(zip(msgspec.structs.fields(kind), values, strict=False))
        yield from ((field.type, value, f"[{n}]") for n, (field, value) in each)
    elif _is_part(kind) and isinstance(data, dict):
        known = {field.name: field for field in msgspec.structs.fields(kind)}
        if "schema" in known:  # first: another version may have other keys
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


def _expected(kind: Any, data: object) -> str:
    """Return in words what a value must be, as in "text"."""
    kind = _without_none(kind)
    kind, *more = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if kind in (int, float) and more:
        least, most = more[0].ge, more[0].le
        if least == -LARGEST:
            return "an integer of at most 64 bits" if type(data) is int else "an integer"
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        return f"{_NAMES[kind]} {limits}"
    if kind in _NAMES:
        return _NAMES[kind]
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return " or ".join(repr(getattr(x, "value", x)) for x in get_args(kind) or kind)
    if get_origin(kind) is tuple and more:
        return f"a list of {more[0].min_length} to {more[0].max_length}"
    if get_origin(kind) is tuple:
        return "a list" if get_args(kind)[-1] is Ellipsis else f"a list of {len(get_args(kind))}"
    if get_origin(kind) is Union:
        return " or ".join(_expected(k, data) for k in get_args(kind))
    return f"a list of {len(kind.__struct_fields__)}" if _is_list(kind) else "an object"


_NAMES = {
    str: "text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    int | float: "a number",
    Double: "a double in hex",
    Fraction: "a fraction",
}


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Part)


def _is_list(kind: Any) -> bool:
    """Whether a part's values stand in JSON without their names."""
    return _is_part(kind) and bool(kind.__struct_config__.array_like)


def _without_none(kind: Any) -> Any:
    """Return an optional type without its None, any other as it is."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(k for k in get_args(kind) if k is not type(None))]  # noqa: UP007


def _meant(kind: Any, data: object) -> Any:
    """Return an optional or constrained type as it is without; of several the one of lists."""
    kind = _without_none(kind)
    if get_origin(kind) is Union and isinstance(data, list):
        kind = next((k for k in map(_bare, get_args(kind)) if get_origin(k) is tuple), kind)
    return _bare(kind)


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


@cache
def _field_types(kind: type[Any]) -> Mapping[str, Any]:
    return {field.name: _without_none(field.type) for field in msgspec.structs.fields(kind)}


def schema(title: str, kind: type) -> str:
    """Return the JSON schema of what ``plain`` writes, as it is shipped."""
    found = msgspec.json.schema(kind, schema_hook=_text_schema)
    for one in found["$defs"].values():
        one["description"] = " ".join(one.pop("description").split())
    dialect = "https://json-schema.org/draft/2020-12/schema"
    written = json.dumps({"title": title, "$schema": dialect, **found}, indent=2) + "\n"
    # Others generate code from these names: "Finding" rather than our "FindingRecord".
    return re.sub(r'"((?:#/\$defs/)?\w+)Record"', r'"\1"', written)


def _text_schema(kind: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^({HEX if kind is Double else FRACTION})$"}
