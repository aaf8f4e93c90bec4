"""Another interpreter as one of our processes: the command, and how it imports."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SELDOM = 10_000
"""New objects, some megabytes, after which the collector goes through the young ones: most of what
our own processes make stays."""
ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder that this package is imported from."""


def command(module: str, *arguments: object) -> list[str]:
    """Return what calls ``main`` of a module of this room with these arguments."""
    given = ", ".join(map(repr, arguments))
    imported = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    called = f"from aggverify.world.{module} import main; main({given})"
    # -P: a torch.py in the working directory must not be taken for torch.
    return [sys.executable, "-P", "-c", imported + called]


@contextmanager
def uncollected() -> Iterator[None]:
    """Run imports without the garbage collector.

    It would take a tenth of their time to find next to nothing: what an import makes stays. So it
    is frozen before the next object has the collector look at all of it. Code under test may have
    switched the collector off for good, as trainers do: then it stays off.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
