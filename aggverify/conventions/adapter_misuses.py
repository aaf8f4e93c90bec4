"""Misuses as an adapter writes them: which arguments are replaced, and by what."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

_SPOILT = {"with", "nan", "short"}


def is_misuse(value: Any) -> bool:
    """Whether it is written as one."""
    if not isinstance(value, dict) or not {"call"} <= value.keys() <= {"call", "modes", *_SPOILT}:
        return False
    known = isinstance(value["call"], str) and isinstance(value.get("with", {}), dict)
    lists = ([*value["with"]] if known and "with" in value else [], value.get("modes", []))
    named = (*lists, value.get("nan", []), value.get("short", []))
    return known and bool(_SPOILT & value.keys()) and all(map(are_texts, named))


def spoiling(one: Mapping[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Replace some arguments, or what is in them (``args.mode``, ``batch.counts`` of a mapping).

    Some lose their last column or element.
    """
    values = {**one.get("with", {}), **dict.fromkeys(one.get("nan", ()), math.nan)}

    def spoil(arguments: dict[str, Any]) -> None:
        for name, value in values.items():
            within, last = _owner(arguments, name)
            within[last] = value
        for name in one.get("short", ()):
            within, last = _owner(arguments, name)
            within[last] = _shortened(within[last])

    return spoil


def _owner(within: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """Return the mapping or attributes that hold what the path names, and its name there.

    Owners on the way are copied: no others are changed.
    """
    *owners, last = path.split(".")
    for name in owners:
        inner = within[name] = copy.copy(within[name])
        within = inner if isinstance(inner, dict) else vars(inner)
    return within, last


def _shortened(value: Any) -> Any:
    return value[:-1] if isinstance(value, list | tuple) else value[..., :-1]


def are_texts(value: Any) -> bool:
    """Whether it is a list of such."""
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
