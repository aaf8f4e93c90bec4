"""What a candidate may return: loss, token count, log; and calls that it should refuse."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aggverify.conventions import Convention, Misuse, Site
from aggverify.conventions.calls import PerCallConvention
from aggverify.engines import EngineSpec
from aggverify.trainer.answer import Log
from aggverify.trainer.blame import blame
from aggverify.trainer.wrapping import around, positional_names
from aggverify.world.candidate_errors import Breach
from aggverify.world.frames import owner

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

_PLAIN = "train with torch.optim.SGD(lr=1) here, or leave the gradient and take no step"
_NEUTRAL = {"momentum": 0, "weight_decay": 0, "maximize": False}
MOST_KEYS = 64
"""Keys of a log that are looked at; frameworks have a dozen."""


class ContractBreach(Breach):
    """The candidate returned something no trainer could take a gradient of."""


class NoGradient(ContractBreach):
    """What it returned does not depend on the losses."""

    name = "no gradient"


def checked_loss(out: Any, *, trains: bool = True) -> Tensor:
    """Return the returned loss as a scalar that backward can start from, where it ``trains``."""
    import torch

    if not isinstance(out, torch.Tensor):
        raise ContractBreach(f"the reducer must return a tensor, got {type(out).__name__} {out!r}")
    if out.numel() != 1:
        raise ContractBreach(f"the reducer must return a scalar, got shape {tuple(out.shape)}")
    if not out.is_floating_point():
        raise ContractBreach(f"the reducer must return a floating-point scalar, got {out.dtype}")
    if trains and not out.requires_grad:
        raise NoGradient(
            "the returned loss is cut off from the losses it was given (it has no gradient), so "
            "this rank's backward would fail"
        )
    return out.reshape(())


def check_optimizer(optimizer: Optimizer) -> None:
    """Require plain SGD: only then the change that a training step leaves is its gradient."""
    import torch

    name = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.SGD):
        raise ContractBreach(f"{name}.step() is not the gradient, taken away; {_PLAIN}")
    for group in optimizer.param_groups:
        settings = {"lr": float(group["lr"])} | {key: group[key] for key in _NEUTRAL}
        for key, value in settings.items():
            if value != _NEUTRAL.get(key, 1.0):
                raise ContractBreach(
                    f"{name}({key}={value}) does not step by the gradient; {_PLAIN}"
                )


def checked_count(count: Any, site: Site, members: tuple[int, ...], engine: EngineSpec) -> int:
    """Return the micro-batch's token count: the reducer's own, or the trainer's from full masks."""
    tokens = [site.counted(i) for i in members]
    if count is None:
        return int(engine.counted(tokens, None))  # a person's own engine may count in floats
    number = float(count)
    if not number.is_integer() or number < 0:
        raise ContractBreach(f"the token count must be a non-negative integer, got {count!r}")
    return int(engine.counted(tokens, int(number)))


def refusals(
    run: Callable[[Callable[..., Any]], Any],
    function: Callable[..., Any],
    how: Convention,
    mode: str | None,
) -> tuple[tuple[str, str | None], ...]:
    """Return the text by which the function refuses each misuse of its mode; None if it does not.

    ``run`` carries out a step with the function it is given. An exception counts if it comes out of
    the candidate's own code: neither Python's own error for a call that does not fit its
    parameters, nor what is wrong with the misused call's result, shows that it looks.
    """
    names = how.parameters or positional_names(function)
    found: dict[str, str | None] = {}
    for misuse in how.misuses:
        if not misuse.modes or mode in misuse.modes:
            raised: list[BaseException] = []
            with suppress(Exception):
                run(_noting(_spoiled(function, misuse, names), raised))
                raised.clear()  # the step came to its end: what was raised was caught again
            found[misuse.name] = next((_error_text(error) for error in raised), None)
    return tuple(found.items())


def _spoiled(
    function: Callable[..., Any], misuse: Misuse, names: tuple[str, ...]
) -> Callable[..., Any]:
    def spoiling(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            misuse.spoil(given)
            positional = [given.pop(name) for name in names[: len(args)]]
            return function(*positional, *args[len(names) :], **given)

        return call

    return around(function, spoiling)


def outcomes(
    function: Callable[..., Any], how: PerCallConvention, site: Site
) -> tuple[tuple[str, str | None], ...]:
    """Return calls by name, with what came of each that should not have.

    None where it is as it must be.

    A parser's ``error`` ends the process: that is a refusal, too.
    """
    found: dict[str, str | None] = {}
    alone = site.case.layout.world_size == 1
    for call in (call for call in how.calls if alone or not call.refused):
        raised: list[BaseException] = []
        try:
            wrong = call.make(_noting(function, raised), site)
        except (Exception, SystemExit) as error:
            if not call.refused:
                blame(how, error)
            refused = call.refused and raised
            found[call.name] = None if refused else f"raises {_error_text(error)}"
        else:
            found[call.name] = "accepted" if call.refused else wrong
    return tuple(found.items())


def _noting(function: Callable[..., Any], raised: list[BaseException]) -> Callable[..., Any]:
    """Return the function, noting exceptions of its own code; so is a function that it returns."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                out = function(*args, **kwargs)
            except (Exception, SystemExit) as error:
                frames = traceback.extract_tb(error.__traceback__)
                if any(owner(frame.filename) == "candidate" for frame in frames):
                    raised.append(error)
                raise
            return _noting(out, raised) if callable(out) else out

        return call

    return around(function, noting)


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def logged(log: Any) -> Log:
    """Return a log as its keys with their numbers, in its order, or the text of its fault."""
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
        found.append((key, tuple(numbers)))
    return tuple(found)


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
