"""A candidate with something done around its calls: a class stays one, whose objects are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

Function = Callable[..., Any]


def around(function: Function, how: Callable[[Function], Function]) -> Function:
    """Return what ``how`` makes of the function.

    For a class that is a class which inherits from it, whose objects' calls go through ``how``.
    """
    if not isinstance(function, type):
        return wraps(function, updated=())(how(function))
    made: type[Any] = function

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return how(partial(made.__call__, self))(*args, **kwargs)

    is_called = any("__call__" in kind.__dict__ for kind in made.__mro__)
    try:
        return type(made.__name__, (made,), {"__call__": called} if is_called else {})
    except TypeError:  # a class of which none can inherit
        return function


def positional_names(function: Function) -> tuple[str, ...]:
    """Return names of what can be passed by position; of a class, to the calls of its objects."""
    if isinstance(function, type):
        return positional_names(partial(function.__call__, None))
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function without a signature
        return ()
    return tuple(p.name for p in found if p.kind in kinds)
