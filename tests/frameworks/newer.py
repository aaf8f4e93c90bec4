"""What every convention calls, in a version that it does not know: one that reads an attribute or a
key of what it is given, takes a parameter more or fewer, or calls a function with another one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import torch

from tests.frameworks import systems
from tests.frameworks.test_shipped import CHECKED

Function = Callable[..., Any]
OWN: dict[str, Function] = {
    "native": lambda losses, batch: losses.sum(),
    "policy-loss": lambda log_probs, advantages, batch: (log_probs * advantages).sum(),
    "slime": lambda lengths, responses, masks, flag=False: torch.sum,
    "trainer": lambda model, micro_batches, ctx: model(micro_batches[0]).sum().backward(),
    "trainer-engine": lambda model, ctx: None,
}
"""Of conventions whose signature is aggverify's, and of the hook of slime."""


def _called(name: str) -> Function:
    found: Any = systems
    for part in CHECKED[name].split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        yield value
        yield from value if isinstance(value, list | tuple) else ()


def attribute(*args: Any, **kwargs: Any) -> None:
    """Of each object that is no tensor."""
    for value in _given(args, kwargs):
        kind = type(value)
        if kind.__module__.startswith(("aggverify.", "_adapter_")) and not isinstance(value, dict):
            value.not_yet  # noqa: B018


def key(*args: Any, **kwargs: Any) -> None:
    """Of each mapping."""
    for value in _given(args, kwargs):
        if isinstance(value, dict):
            value["not_yet"]


def more(*args: Any, not_yet: Any, **kwargs: Any) -> None:
    """A parameter."""


def fewer() -> None:
    """It is given too much."""


WAYS = (attribute, key, more, fewer)
for _name in (*CHECKED, *OWN):
    _function = OWN.get(_name) or _called(_name)
    for _way in WAYS:

        def _newer(*args: Any, _way: Any = _way, _then: Any = _function, **kwargs: Any) -> Any:
            _way(*args, **kwargs)
            return _then(*args, **kwargs)

        _own = FunctionType(_way.__code__, _way.__globals__)
        _known = functools.wraps(_function)(_newer if _way in (attribute, key) else _own)
        globals()[f"{_way.__name__}_{_name.replace('-', '_')}"] = _known
reduce_loss = systems.reduce_loss


def older_skyrl(
    advantages: Any, loss_mask: Any, loss_reduction: str, micro_batch_size: int, max_seq_len: int
) -> Any:
    """SkyRL 0.2.0, which has no boundaries of prompts, and so no mean over them."""
    if loss_reduction == "sequence_mean":
        return advantages / (len(loss_mask) * loss_mask.sum(-1, keepdim=True).clamp(min=1))
    count = loss_mask.sum() if loss_reduction == "token_mean" else len(loss_mask) * max_seq_len
    return advantages / count


def key_logs(logs: Any, ctx: Any) -> Any:
    return logs[0]["not_yet"]


def own_attribute(losses: Any, batch: Any) -> Any:
    return SimpleNamespace(losses=losses).masks


def own_key(losses: Any, batch: Any) -> Any:
    return {"losses": losses}["masks"]


def own_call(losses: Any, batch: Any) -> Any:
    return own_key(losses, batch, True)  # type: ignore[call-arg]


def of_none(losses: Any, batch: Any) -> Any:
    return losses.sum() / batch.divisor.item()


def wrong_use(losses: Any, batch: Any) -> Any:
    return batch.rows(losses, side="top")
