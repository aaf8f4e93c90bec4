"""Notices what a candidate changes in the arguments it was handed; runs in a rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aggverify.trainer.wrapping import around


@dataclass(slots=True)
class ArgumentWatch:
    """Copies of everything handed to the candidate, to be compared with the originals later."""

    _kept: list[tuple[str, Any, Any]] = field(default_factory=list)

    def function(self, function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
        """Return the function with its arguments watched; so is a function that it returns."""

        def watching(function: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                for n, value in enumerate(args):
                    self._keep(f"{name}argument {n + 1}", value)
                for key, value in kwargs.items():
                    self._keep(f"{name}{key}", value)
                out = function(*args, **kwargs)
                return self.function(out, "the returned function's ") if callable(out) else out

            return watched

        return around(function, watching)

    def module(self, module: Any) -> Any:
        """Return the module with all its functions watched."""
        return WatchedModule(module, self)

    def changes(self) -> list[str]:
        """Return what differs from when it was handed over, each as ``where: was ..., is ...``."""
        return [
            f"{where}: {how}" for where, now, was in self._kept for how in _differences(now, was)
        ]

    def _keep(self, where: str, value: Any) -> None:
        self._kept += [(path, leaf, _copied(leaf)) for path, leaf in _leaves(where, value)]


class WatchedModule:
    """A module whose functions are watched, by whatever ``watch.function`` does."""

    def __init__(self, module: Any, watch: Any) -> None:
        self._module, self._watch = module, watch

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return self._watch.function(value, f"{name}'s ") if callable(value) else value


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and containers inside a value, with the path to each."""
    import torch

    if isinstance(value, torch.Tensor | list | dict | set | bytearray):
        yield where, value
    if dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            yield from _leaves(f.name, getattr(value, f.name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{where}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            yield from _leaves(f"{where}[{n}]", item)


def _copied(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()


def _differences(now: Any, was: Any) -> Iterator[str]:
    import torch

    if not isinstance(now, torch.Tensor):
        # Members that are containers or tensors themselves are looked at on their own.
        if len(now) != len(was) or not _same_members(now, was):
            yield f"was {was!r}, is {now!r}"[:200]
        return
    now = now.detach()
    if now.shape != was.shape or now.dtype != was.dtype:
        yield f"was {was.dtype}{list(was.shape)}, is {now.dtype}{list(now.shape)}"
        return
    same = (now == was) | ((now != now) & (was != was))
    if not bool(same.all()):
        at = int((~same).flatten().nonzero()[0])
        yield f"element {at} was {was.flatten()[at].item()}, is {now.flatten()[at].item()}"


def _same_members(now: Any, was: Any) -> bool:
    if isinstance(now, dict):
        return all(key in now and _same(now[key], was[key]) for key in was)
    if isinstance(now, list):
        return all(map(_same, now, was))
    return bool(now == was)


def _same(now: Any, was: Any) -> bool:
    if now is was:
        return True
    if isinstance(now, tuple) and isinstance(was, tuple):
        return len(now) == len(was) and all(map(_same, now, was))
    plain = bool | int | float | str | bytes
    return isinstance(now, plain) and isinstance(was, plain) and now == was
