"""Where a framework keeps a function: modules move from version to version."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


def found(name: str, *homes: str) -> Any:
    """Return the function of the first of these modules that has it, None where none has."""
    return getattr(home(name, *homes), name, None)


@cache
def home(name: str, *homes: str) -> ModuleType | None:
    """Return the first of these modules that has such a function, None where none has.

    A module that is there and cannot be imported raises LookupError: what it needs is missing.
    """
    for each in homes:
        try:
            module = import_module(each)
        except ModuleNotFoundError as error:
            if f"{each}.".startswith(f"{error.name}."):
                continue
            why = f"{each} cannot be imported: {error}"
        else:
            if hasattr(module, name):
                return module
            continue
        raise LookupError(why)
    return None
