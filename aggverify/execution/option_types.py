"""Kinds of values that an option takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from aggverify.errors import shown
from aggverify.execution.budget import LARGEST


class OptionType(Enum):
    """What a value is, in the words of an error."""

    TEXT = "a text"
    TEXTS = "a text or a list of texts"
    NUMBER = "a finite number"
    INTEGER = "an integer"
    READINGS = "a table of question = reading"
    FLAG = "true or false"

    def fits(self, value: Any) -> bool:
        """Whether a value out of TOML, or of a module's dict, is one."""
        match self:
            case OptionType.TEXT:
                return _is_text(value)
            case OptionType.TEXTS:
                several = isinstance(value, list | tuple) and all(map(_is_text, value))
                return _is_text(value) or several
            case OptionType.NUMBER:
                return _is_number(value)
            case OptionType.INTEGER:
                return _is_integer(value)
            case OptionType.READINGS:
                return isinstance(value, Mapping) and all(
                    _is_text(k) and (_is_text(v) or _is_integer(v)) for k, v in value.items()
                )
            case OptionType.FLAG:
                return isinstance(value, bool)


MOST_TEXTS, LONGEST = 100, 10_000
"""Texts of a list, and characters of a text."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_number(value: object) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return known and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond every float
        return False


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def too_much(value: Any) -> str | None:
    """Return what is wrong with the size of a value of the right kind."""
    parts = value.values() if isinstance(value, Mapping) else value
    several = isinstance(value, list | tuple | Mapping)
    if several and len(value) > MOST_TEXTS:
        return f"must be at most {MOST_TEXTS}, got {len(value)}"
    for part in parts if several else [value]:
        if isinstance(part, str) and len(part) > LONGEST:
            return f"must be at most {LONGEST} characters, got {len(part)}"
        if isinstance(part, int) and abs(part) > LARGEST:
            return f"must fit into 64 bits, got {shown(part)}"
    return None
