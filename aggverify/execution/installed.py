"""Modes that packages bring, known before a name of one is read."""

from __future__ import annotations

from aggverify import plugins
from aggverify.oracles import Mode, OracleError
from aggverify.oracles.modes import register


def installed_modes() -> None:
    """Register them; what is no good is named in a warning."""
    for mode in plugins.brought("modes", Mode).values():
        try:
            register(mode)
        except OracleError as error:
            plugins.left_out(repr(mode.name), "modes", str(error))
