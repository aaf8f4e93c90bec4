"""Text that others wrote, made harmless for a terminal and for the log of a CI service."""

from __future__ import annotations

import json
import re
from typing import Any

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# A CI service obeys ``::error::`` and the like at the start of a line, leading spaces aside, and
# ``##[error]``, ``##vso[...]`` and TeamCity's ``##teamcity[`` anywhere in it.
_COMMAND = re.compile(r"^( *):(?=:)", re.MULTILINE)
_OLD_COMMAND = re.compile(r"##(?=\w*\[)")


def clean(text: str) -> str:
    """Replace control and invisible characters (escape sequences, text direction).

    Commands to a CI service are broken in the same way; line feeds stay.
    """
    text = text.replace("\t", "    ")
    text = "".join(c if c.isprintable() or c == "\n" else _REPLACEMENT for c in text)
    return _OLD_COMMAND.sub(f"#{_REPLACEMENT}", _COMMAND.sub(rf"\1{_REPLACEMENT}", text))


def json_text(data: Any, **options: Any) -> str:
    """JSON in which no text stands as a CI service's command; the same data when read."""
    return _OLD_COMMAND.sub(r"\\u0023#", json.dumps(data, **options))


def line(text: str) -> str:
    """Return the text cleaned and on one line: also line feeds are replaced."""
    return clean(text.replace("\n", _REPLACEMENT))


def indented(text: str) -> str:
    """Return the text cleaned, later lines indented: none can pass for a message of ours."""
    return clean(text).replace("\n", "\n    ")
