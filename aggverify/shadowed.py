"""A person's file that is imported in place of one of Python's own modules."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def shadowed() -> str | None:
    """The sentence that says which, where one was loaded; None where none was."""
    own = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in sys.stdlib_module_names or file is None:
            continue
        if not any(Path(file).resolve().is_relative_to(folder) for folder in own):
            return (
                f"{file} is imported in place of Python's own module {name}: rename it, or take "
                "its folder out of PYTHONPATH"
            )
    return None
