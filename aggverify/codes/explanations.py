"""What each code means to people: a person's own text, or that of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from aggverify.codes.base import Code, Explanation
from aggverify.codes.catalogue import CATALOGUE
from aggverify.codes.registry import CODES


def explanation(code: Code) -> Explanation | None:
    """Return what a code means to people: None only for a person's own that brings nothing."""
    if code.explanation is None and code.code in CATALOGUE:
        return CATALOGUE[code.code].explanation
    return code.explanation


def explanations() -> Mapping[str, Explanation]:
    """Every explanation there is by its code, in order of codes."""
    found = {name: explanation(code) for name, code in CODES.items()}
    return {name: text for name, text in found.items() if text is not None}
