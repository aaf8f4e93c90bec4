"""Where a framework keeps a function: modules move from version to version."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def found(name: str, *homes: str) -> Any:
    """Return the function of the first of these modules that there is, None where there is none.

    A module that is there and cannot be imported raises LookupError: what it needs is missing.
    """
    for home in homes:
        try:
            module = import_module(home)
        except ModuleNotFoundError as error:
            if f"{home}.".startswith(f"{error.name}."):
                continue
            why = f"{home} cannot be imported: {error}"
        else:
            if hasattr(module, name):
                return getattr(module, name)
            continue
        raise LookupError(why)
    return None
