"""Every aggregation mode: one file and one line each.

``MODES`` are the canonical ones, whose formula has no parameter except the divisor. ``FAMILIES``
make modes of one: ``mode("vl_norm")`` is the member with parameter 1, ``mode("vl_norm(0.75)")``
another.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib import import_module
from types import MappingProxyType

from ..errors import OracleError
from . import length_weighted, pair_mean, token_mean_legacy, vl_norm
from .base import Mode
from .names import LEGACY, Meaning, Names, names_of
from .parameter import member_of

_ORDER = (
    "sample_mean",
    "prompt_mean",
    "token_mean",
    "constant",
    "token_sum",
    "sequence_sum",
)
"""Modules of this folder, each with its ``MODE``."""


_OWN: list[Mode] = [import_module(f".{module}", __name__).MODE for module in _ORDER]
MODES: dict[str, Mode] = {mode.name: mode for mode in _OWN}

FAMILIES: Mapping[str, Callable[[Fraction], Mode]] = {
    "vl_norm": vl_norm.member,
    "length_weighted": length_weighted.member,
}

PAIRED: Mapping[str, Mode] = {pair_mean.MODE.name: pair_mean.MODE}
"""Modes of steps of pairs only, which are asked for by name and never recognised."""

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
    if new.name in {*MODES, *FAMILIES, *PAIRED} or not _PLAIN.fullmatch(new.name):
        raise OracleError(f"mode {new.name!r}: the name is in use, or no plain word")
    MODES[new.name] = new
    _NAMES.update(names_of([*MODES.values(), LEGACY]))


_PLAIN = re.compile(r"[A-Za-z_]\w{0,63}")


def mode(name: str | Mode) -> Mode:
    """Return the mode of that name (a mode is its own).

    Raises OracleError naming the known ones.
    """
    if isinstance(name, Mode):
        return name
    if name in MODES:
        return MODES[name]
    if name in PAIRED:
        return PAIRED[name]
    word, parameter = member_of(name)
    if word in _SIZED and parameter is not None:
        return _SIZED[word](parameter)
    if word in FAMILIES:
        return FAMILIES[word](Fraction(1) if parameter is None else parameter)
    raise _unknown(name)


def family(name: str) -> str:
    """Return the name without its parameter."""
    word, _ = member_of(name)
    return word if word in {*FAMILIES, *_SIZED} else name


def translated(name: str) -> Meaning:
    """Return the mode that a name stands for, a framework's or its own.

    What is no name at all stands for itself. Raises OracleError for one that stands for several.
    """
    if name in MODES or name not in NAMES:
        return Meaning(name)
    first, *others = NAMES[name]
    if others:
        meanings = "; ".join(meaning.sentence(name) for meaning in NAMES[name])
        raise OracleError(f"{name!r} is the name of several modes: {meanings}")
    return first


def _unknown(name: object) -> OracleError:
    known = [*MODES, *FAMILIES, *PAIRED]
    close = difflib.get_close_matches(str(name)[:80], [*known, *NAMES], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    if close and close[0] not in known:
        hint = f"{hint[:-1]} ({NAMES[close[0]][0].sentence(close[0])})?"
    return OracleError(f"unknown mode {name!r:.200}{hint} (known: {', '.join(known)})")


__all__ = [
    "FAMILIES",
    "LEGACY",
    "MODES",
    "NAMES",
    "PAIRED",
    "Meaning",
    "Mode",
    "family",
    "mode",
    "translated",
]
