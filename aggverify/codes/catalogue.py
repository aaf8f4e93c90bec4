"""Every code of the tool's own, with its traits and texts: one entry of a TOML file a code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, NamedTuple

from aggverify import codec
from aggverify.codes.base import Code, Explanation
from aggverify.errors import InputError, shown, unknown

TEXTS = Explanation.__struct_fields__
TRAITS = tuple(name for name in Code.__struct_fields__ if name not in ("code", "explanation"))


class CodeEntry(NamedTuple):
    """A code, and what it means to people."""

    code: Code
    explanation: Explanation


def read(name: str, data: object) -> CodeEntry:
    """Return the entry of that name; raises InputError naming it, and the key that is wrong."""
    if not isinstance(data, dict):
        raise InputError(f"{name} must be a table, got {shown(data)}")
    for key in data:
        if key not in TRAITS + TEXTS:
            raise unknown(f"key of {name}", key, TRAITS + TEXTS)
    traits, texts = ({k: data[k] for k in keys if k in data} for keys in (TRAITS, TEXTS))
    code = codec.read(Code, {"code": name, **traits}, name)
    return CodeEntry(code, codec.read(Explanation, texts, name))


def stored(folder: Traversable) -> dict[str, CodeEntry]:
    """Return the entries of every TOML file in a folder, in order of the files' names."""
    found: dict[str, Any] = {}
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text("utf-8"))
            if twice := found.keys() & data.keys():
                raise InputError(f"{file.name}: already in another file: {', '.join(twice)}")
            found |= data
    return {name: read(name, data) for name, data in found.items()}


CATALOGUE: Mapping[str, CodeEntry] = MappingProxyType(stored(files(__package__)))
