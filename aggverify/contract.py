"""The rank's side of the contract's finer print: logs, and calls that should be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aggverify.conventions import Convention

MOST_KEYS = 64
"""Keys of a log that are looked at; frameworks have a dozen."""

Reply = tuple[dict[str, Any], bytes]


def spoiled(function: Callable[..., Any], how: Convention, name: str) -> Callable[..., Any]:
    """The function, called with the arguments of the convention's misuse of that name."""
    [misuse] = [m for m in how.misuses if m.name == name]

    def call(*args: Any) -> Any:
        arguments = list(args)
        misuse.spoil(arguments)
        return function(*arguments)

    return call


def misused(run: Callable[[], Reply]) -> Reply:
    """The step's reply, or how the candidate refused it."""
    try:
        reply, blob = run()
    except Exception as error:
        return {"refusal": f"{type(error).__name__}: {error}"[:200]}, b""
    return reply | {"refusal": None}, blob


def logged(log: Any) -> Any:
    """A log as plain data: ``[[key, [hex, ...]], ...]`` in its order, or the text of its fault."""
    if log is None:
        return None
    if not isinstance(log, Mapping):
        return f"the log must be a mapping, got {type(log).__name__}"
    found = []
    for key, value in list(log.items())[:MOST_KEYS]:
        if not isinstance(key, str):
            return f"a key of the log must be text, got {key!r}"
        numbers = _numbers(value)
        if numbers is None:
            return f"log[{key!r}] must be a scalar or a pair [sum, count], got {_shown(value)}"
        found.append([key, [x.hex() for x in numbers]])
    return found


def _numbers(value: Any) -> list[float] | None:
    """One number, or two; None for anything else."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel() not in (1, 2) or value.is_complex():
            return None
        return [float(x) for x in value.detach().double().flatten()]
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, list | tuple) and len(value) == 2:
        parts = [_numbers(x) for x in value]
        return [p[0] for p in parts if p] if all(p and len(p) == 1 for p in parts) else None
    return None


def _shown(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"[:120]
