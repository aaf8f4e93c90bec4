"""A right function, and the same with a mistake in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
