"""Text that others wrote, made harmless for a terminal and for the log of a CI service."""

from __future__ import annotations

import json
import re
from typing import Any

_ODD = "\N{REPLACEMENT CHARACTER}"
# At the start of a line, leading spaces aside: ``::error::`` and the like. Anywhere in it:
# ``##[error]``, ``##vso[...]`` and TeamCity's ``##teamcity[``.
_COMMAND = re.compile(r"^( *):(?=:)", re.MULTILINE)
_OLD_COMMAND = re.compile(r"##(?=\w*\[)")


def clean(text: str) -> str:
    """Remove control and invisible characters (escape sequences, text direction).

    Also what a CI service would take for a command; line feeds stay.
    """
    text = text.replace("\t", "    ")
    text = "".join(c if c.isprintable() or c == "\n" else _ODD for c in text)
    return _OLD_COMMAND.sub(f"#{_ODD}", _COMMAND.sub(rf"\1{_ODD}", text))


def json_text(data: Any, **options: Any) -> str:
    """JSON in which no text stands as a CI service's command; the same data when read."""
    return _OLD_COMMAND.sub(r"\\u0023#", json.dumps(data, **options))


def line(text: str) -> str:
    """Return the same on one line."""
    return clean(text.replace("\n", _ODD))


def indented(text: str) -> str:
    """Return the same with every line but the first indented: none of them stands for itself."""
    return clean(text).replace("\n", "\n    ")
