"""Every aggregation mode: one file each, registered here."""

from __future__ import annotations

import difflib

from oracles.errors import OracleError
from oracles.modes import (
    constant,
    prompt_mean,
    sample_mean,
    sequence_sum,
    token_mean,
    token_sum,
)
from oracles.modes.base import Mode

MODES: dict[str, Mode] = {
    module.MODE.name: module.MODE
    for module in (sample_mean, prompt_mean, token_mean, constant, token_sum, sequence_sum)
}


def mode(name: str | Mode) -> Mode:
    """The mode of that name (a mode is its own); raises OracleError naming the known ones."""
    if isinstance(name, Mode):
        return name
    if name not in MODES:
        close = difflib.get_close_matches(str(name), MODES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise OracleError(f"unknown mode {name!r}{hint} (known: {', '.join(MODES)})")
    return MODES[name]


__all__ = ["MODES", "Mode", "mode"]
