"""Exit statuses, and what ends a process that has none yet, in words."""

from __future__ import annotations

import contextlib
import signal


def exit_text(status: int | None) -> str:
    """How a process ended: exit status, or signal with its name (negative numbers)."""
    if status is None:
        return "closed its connection"
    if status >= 0:
        return f"exited with status {status}"
    return f"was ended by {signal_name(status)}"


def printed(most: int) -> str:
    """Of a process that has written more than so many bytes."""
    return f"prints without end: it has written more than {most / (1 << 20):g} MiB"


def signal_name(status: int) -> str:
    """Return the name of the signal of a negative exit status."""
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"
