"""Every aggregation mode: one file each, registered here.

``MODES`` are the canonical ones, whose formula has no parameter beside the divisor. ``FAMILIES``
make modes of one: ``mode("vl_norm")`` is the member with parameter 1, ``mode("vl_norm(0.75)")``
another.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from ..errors import OracleError
from . import (
    constant,
    length_weighted,
    prompt_mean,
    sample_mean,
    sequence_sum,
    token_mean,
    token_mean_legacy,
    token_sum,
    vl_norm,
)
from .base import Mode
from .names import LEGACY, Meaning, Names, names_of

MODES: dict[str, Mode] = {
    module.MODE.name: module.MODE
    for module in (sample_mean, prompt_mean, token_mean, constant, token_sum, sequence_sum)
}

FAMILIES: Mapping[str, Callable[[Fraction], Mode]] = {
    "vl_norm": vl_norm.member,
    "length_weighted": length_weighted.member,
}

_SIZED: Mapping[str, Callable[[Fraction], Mode]] = {LEGACY.name: token_mean_legacy.member}
"""Modes only for micro-batches of so many samples, which is their parameter and has no default."""
_NAMES = dict(names_of([*MODES.values(), LEGACY]))
NAMES: Names = MappingProxyType(_NAMES)
"""What a person may write for a mode besides its own name; a view that shows what is registered
later."""


def register(new: Mode) -> None:
    """Add a mode of a framework's own; raises OracleError for a name that is in use."""
    if MODES.get(new.name) is new:
        return
    if new.name in MODES or new.name in FAMILIES or not _PLAIN.fullmatch(new.name):
        raise OracleError(f"mode {new.name!r}: the name is in use, or no plain word")
    MODES[new.name] = new
    _NAMES.update(names_of([*MODES.values(), LEGACY]))


_PLAIN = re.compile(r"[A-Za-z_]\w{0,63}")
_MEMBER = re.compile(r"(\w+)(?:\((-?\d{1,9}(?:\.\d{1,9}|/\d{1,9})?)\))?")


def mode(name: str | Mode) -> Mode:
    """The mode of that name (a mode is its own); raises OracleError naming the known ones."""
    if isinstance(name, Mode):
        return name
    if name in MODES:
        return MODES[name]
    match = _MEMBER.fullmatch(str(name))
    if match is not None and match[1] in _SIZED and match[2]:
        return _SIZED[match[1]](_parameter(name, match[2]))
    if match is not None and match[1] in FAMILIES:
        return FAMILIES[match[1]](_parameter(name, match[2] or "1"))
    raise _unknown(name)


def family(name: str) -> str:
    """The name without its parameter."""
    match = _MEMBER.fullmatch(name)
    return match[1] if match is not None and match[1] in {*FAMILIES, *_SIZED} else name


def translated(name: str) -> Meaning:
    """The mode that a name stands for, a framework's or its own; what is no name at all stands for
    itself. Raises OracleError for one that stands for several."""
    if name in MODES or name not in NAMES:
        return Meaning(name)
    first, *others = NAMES[name]
    if others:
        meanings = "; ".join(meaning.sentence(name) for meaning in NAMES[name])
        raise OracleError(f"{name!r} is the name of several modes: {meanings}")
    return first


def _unknown(name: object) -> OracleError:
    known = [*MODES, *FAMILIES]
    close = difflib.get_close_matches(str(name)[:80], [*known, *NAMES], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    if close and close[0] not in known:
        hint = f"{hint[:-1]} ({NAMES[close[0]][0].sentence(close[0])})?"
    return OracleError(f"unknown mode {name!r:.200}{hint} (known: {', '.join(known)})")


def _parameter(name: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise OracleError(f"the parameter of a mode must be a number, got {name!r}") from None


__all__ = [
    "FAMILIES",
    "LEGACY",
    "MODES",
    "NAMES",
    "Meaning",
    "Mode",
    "family",
    "mode",
    "translated",
]
