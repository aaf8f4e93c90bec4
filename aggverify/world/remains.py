"""What a dead process leaves to read: its exit status and the end of its output."""

from __future__ import annotations

import os
import signal

OUTPUT_TAIL = 4000
"""Bytes of output that are kept."""


def death(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "vanished"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def tail(memory: int) -> str:
    """The end of what was written to an in-memory file, which is closed."""
    size = os.fstat(memory).st_size
    text = os.pread(memory, OUTPUT_TAIL, max(0, size - OUTPUT_TAIL)).decode(errors="replace")
    os.close(memory)
    return text
