"""A candidate with something done around its calls: a class stays one, whose objects are called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

Function = Callable[..., Any]


def around(function: Function, how: Callable[[Function], Function]) -> Function:
    """``how`` of the function.

    Of a class one that inherits from it, whose objects' calls are made through ``how``.
    """
    if not isinstance(function, type):
        return wraps(function, updated=())(how(function))
    made: type[Any] = function

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return how(partial(made.__call__, self))(*args, **kwargs)

    is_called = any("__call__" in kind.__dict__ for kind in made.__mro__)
    try:
        return type(made.__name__, (made,), {"__call__": called} if is_called else {})
    except TypeError:  # of which none can inherit
        return function
