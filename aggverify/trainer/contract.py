"""The rank's side of the contract's finer print: logs, and calls that should be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aggverify.conventions import Convention, Misuse

MOST_KEYS = 64
"""Keys of a log that are looked at; frameworks have a dozen."""

Reply = tuple[dict[str, Any], bytes]


def refusals(
    run: Callable[[Callable[..., Any]], Any],
    function: Callable[..., Any],
    how: Convention,
    mode: str | None,
) -> Reply:
    """With what the function refuses each misuse of its mode; None for one that it accepts.

    ``run`` carries out a step with the function it is given.
    """
    found: dict[str, str | None] = {}
    for misuse in how.misuses:
        if not misuse.modes or mode in misuse.modes:
            found[misuse.name] = _refusal(lambda m=misuse: run(_spoiled(function, m)))  # type: ignore[misc]
    return {"refusals": found}, b""


def _spoiled(function: Callable[..., Any], misuse: Misuse) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        arguments = list(args)
        misuse.spoil(arguments)
        return function(*arguments)

    return call


def _refusal(run: Callable[[], Any]) -> str | None:
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


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
