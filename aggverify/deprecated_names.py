"""Names of the version before, which warn and go with the next one."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping


def warn_of_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that ``old`` is now ``new``, at the line of the caller's caller."""
    message = f"{old} was renamed, and goes with the next version: write {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def renamed_in(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module's ``__getattr__`` that finds old names, each as "module:name" of today."""

    def found(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        where, _, new = names[name].partition(":")
        warn_of_renamed(f"{module}.{name}", f"{where}.{new}")
        return getattr(importlib.import_module(where), new)

    return found
