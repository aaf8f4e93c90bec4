"""What an adapter that `aggverify new` wrote takes for granted, until a person has confirmed it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from aggverify.conventions.adapter_text import ASSUMED as KEY
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import Option, Where
from aggverify.files import contents, parsed
from aggverify.model import Assumption

ASSUMED = Option(
    key=KEY,
    kind=OptionType.READINGS,
    help="What was guessed of the call, by argument: a person deletes what is right.",
    where=Where.ANYWHERE,
)
"""A key that only a file's ``AGGVERIFY`` can have, no option and no setting."""


def assumptions(declared: Mapping[str, object], path: Path | None) -> tuple[Assumption, ...]:
    """Return each assumption that the file declares, with its line where that is known."""
    found = declared.get(ASSUMED.key)
    if not isinstance(found, Mapping):
        return ()
    lines = {} if path is None else _lines(path)
    return tuple(Assumption(name, str(reading), lines.get(name)) for name, reading in found.items())


def _lines(path: Path) -> Mapping[str, int]:
    """Where the entries of the table are written."""
    with suppress(OSError, SyntaxError):
        for node in ast.walk(parsed(contents(path))):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    named = isinstance(key, ast.Constant) and key.value == ASSUMED.key
                    if named and isinstance(value, ast.Dict):
                        keys = (k for k in value.keys if isinstance(k, ast.Constant))
                        return {str(key.value): key.lineno for key in keys}
    return {}
