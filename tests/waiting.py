"""Waiting for what must happen, however long the machine takes over it."""

from __future__ import annotations

import time
from collections.abc import Callable

GIVEN_UP_AFTER = 600.0
"""Seconds after which only a test that fails still waits: no outcome of a right one hangs on it."""


def wait_until(happened: Callable[[], object], seconds: float = GIVEN_UP_AFTER) -> bool:
    """Whether it has happened; asked again and again until it has."""
    ends = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True
