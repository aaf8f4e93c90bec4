"""What each code means to people, as data: one TOML file a family of codes, next to this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from aggverify.codes.base import Code, Example, Explanation
from aggverify.codes.registry import CODES


def explanation(code: Code) -> Explanation | None:
    """Return what a code means to people: None only for a person's own that brings nothing."""
    return code.explanation or _stored().get(code.code)


def explanations() -> Mapping[str, Explanation]:
    """Every explanation there is by its code, in order of codes."""
    found = {name: explanation(code) for name, code in CODES.items()}
    return {name: text for name, text in found.items() if text is not None}


@cache
def _stored() -> Mapping[str, Explanation]:
    raw: dict[str, Any] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            raw |= tomllib.loads(file.read_text(encoding="utf-8"))
    return {code: _explanation(data) for code, data in raw.items()}


def _explanation(data: Mapping[str, Any]) -> Explanation:
    return Explanation(
        data["meaning"].strip(),
        data["fix"].strip(),
        tuple(data["bugs"]),
        _example(data["example"]) if "example" in data else None,
        tuple(map(_example, data.get("more", ()))),
    )


def _example(data: Mapping[str, Any]) -> Example:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Example(**given)
