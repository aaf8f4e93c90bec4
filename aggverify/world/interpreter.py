"""The command that starts another interpreter as one of our processes."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder that this package is imported from."""


def command(module: str, *arguments: object) -> list[str]:
    """Return what calls ``main`` of a module of this room with these arguments."""
    given = ", ".join(map(repr, arguments))
    imported = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    called = f"from aggverify.world.{module} import main; main({given})"
    # -P: a torch.py in the working directory must not be taken for torch.
    return [sys.executable, "-P", "-c", imported + called]
