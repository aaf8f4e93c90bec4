"""Writes down what a candidate is given in one call; runs in a rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aggverify.trainer.argument_changes import WatchedModule
from aggverify.trainer.wrapping import around, positional_names

MOST, LONGEST = 60, 200
"""Values listed, and characters of each."""


Argument = tuple[str, str, str]
"""One value: its name in the candidate's own words, its type with dtype and shape, itself."""


@dataclass(slots=True)
class RecordedArguments:
    """What functions were called with, in the order of the calls."""

    given: list[Argument] = field(default_factory=list)

    def function(self, function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
        """Return the function with its arguments written down; so is a function that it returns."""

        def showing(function: Callable[..., Any]) -> Callable[..., Any]:
            def shown(*args: Any, **kwargs: Any) -> Any:
                for argument, value in (*_named(function, args), *kwargs.items()):
                    for described in _arguments(f"{name}{argument}", value):
                        if len(self.given) < MOST:
                            self.given.append(described)
                out = function(*args, **kwargs)
                return self.function(out, "the returned function's ") if callable(out) else out

            return shown

        return around(function, showing)

    def module(self, module: Any) -> Any:
        """Return the module with the arguments of all its functions written down."""
        return WatchedModule(module, self)


def _named(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    names = positional_names(function)
    for n, value in enumerate(args):
        yield (names[n] if n < len(names) else f"argument {n + 1}"), value


def _arguments(name: str, value: Any) -> Iterator[Argument]:
    """Yield the value, or those that are in it where it has names or holds tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        shape = "x".join(map(str, value.shape)) or "scalar"
        kind = f"{str(value.dtype).removeprefix('torch.')} tensor, {shape}"
        yield name, kind, _cut(value.detach().tolist())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            if not f.name.startswith("_"):
                yield from _arguments(f"{name}.{f.name}", getattr(value, f.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _arguments(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple) and any(isinstance(x, torch.Tensor) for x in value):
        for n, item in enumerate(value):
            yield from _arguments(f"{name}[{n}]", item)
    else:
        # The text of any other object is little more than its address in memory.
        plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
        yield name, type(value).__name__, _cut(value) if plain else ""


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
