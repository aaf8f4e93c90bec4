"""A right function, and the same with a mistake in it; modules that stand in for a framework's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_called = [""]


def wrong(*names: str) -> bool:
    """Whether the twin of one of these systems is being called."""
    return _called[-1] in names


def twin(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        _called.append(name)
        try:
            return function(*args, **kwargs)
        finally:
            _called.pop()

    return called


def stand_in(name: str) -> ModuleType:
    """An empty module that can be imported by that name."""
    found, above = ModuleType(name), name.rpartition(".")[0]
    sys.modules[name] = found
    if above:
        setattr(sys.modules.get(above) or stand_in(above), name.rpartition(".")[2], found)
    return found
