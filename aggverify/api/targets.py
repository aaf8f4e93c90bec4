"""From what a person has in their hands, a text or an object, to a target that ranks can import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from aggverify.errors import InputError

Reducer = str | Callable[..., Any]
"""``path.py[:name]``, ``package.module:name``, or an object that has a name in a module."""


def target_text(reducer: Reducer) -> str:
    """Return the target of a text, or of a function, partial, lambda or callable instance.

    Ranks are processes of their own: they import the module and take the object by its name. Raises
    InputError, with the reason, for an object that they cannot find so.
    """
    if isinstance(reducer, str):
        return reducer
    if not callable(reducer):
        raise InputError(f"a reducer is a target or something callable, got {reducer!r:.200}")
    found = _named(reducer)
    if found is None:
        raise InputError(
            f"{reducer!r:.200} has no name at the top of a module, so ranks, which are processes "
            f"of their own, cannot import it: assign it to one"
        )
    module, name = found
    file = getattr(module, "__file__", None)
    if file is None:
        raise InputError(
            f"{name} was defined in no file ({module.__name__}), so ranks cannot import it: write "
            f"it to a file (in a notebook: %%writefile reducer.py)"
        )
    if module.__package__:  # its relative imports need the package
        return f"{module.__name__}:{name}"
    return f"{Path(file)}:{name}"


def _named(reducer: object) -> tuple[ModuleType, str] | None:
    """Return the module in which the object has a name, its own one first, and that name.

    A partial or an instance does not know where it was named, so every module is looked through.
    """
    own = sys.modules.get(str(getattr(reducer, "__module__", None)))
    for module in (own, *sys.modules.values()):
        if isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                if value is reducer:
                    return module, name
    return None
