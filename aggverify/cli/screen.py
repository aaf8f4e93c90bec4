"""What a command shows on the terminal: ``-v``, ``-q`` and ``--color``, read in one place."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggverify.report.terminal import Terminal


def terminal(mine: Mapping[str, Any], where: Path, *, shown: bool) -> Terminal:
    """Return the terminal of progress and verdicts.

    ``shown``: whether a report goes to standard output, so that this one is standard error.
    """
    from rich.console import Console

    from aggverify.execution.options import default
    from aggverify.report.terminal import Terminal
    from aggverify.report.text import Style

    color = mine.get("color", default("color"))
    console = Console(
        stderr=shown,
        force_terminal=True if color == "always" else None,
        color_system=None if color == "never" else "standard" if color == "always" else "auto",
    )
    style = Style(console.width, "verbose" in mine, "quiet" in mine)
    return Terminal(console, where, style, live=(sys.stderr if shown else sys.stdout).isatty())
