"""A person's file that is imported in place of one of Python's own modules."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def shadowed(error: BaseException | None = None) -> str | None:
    """Return a sentence on the first such file that was loaded, or that ``error`` came from.

    None where there is none.
    """
    own = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    for name, file in (*_failed(error), *_loaded()):
        if not any(Path(file).resolve().is_relative_to(folder) for folder in own):
            return (
                f"{file} is imported in place of Python's own module {name}: rename it, or take "
                "its folder out of PYTHONPATH"
            )
    return None


def _loaded() -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in sys.stdlib_module_names and file is not None:
            yield name, file


def _failed(error: BaseException | None) -> Iterator[tuple[str, str]]:
    """Modules that raised while they were imported: Python keeps none of them as loaded."""
    trace = None if error is None else error.__traceback__
    while trace is not None:
        name, code = trace.tb_frame.f_globals.get("__name__"), trace.tb_frame.f_code
        if name in sys.stdlib_module_names and code.co_name == "<module>":
            yield name, code.co_filename
        trace = trace.tb_next
