"""Writes down the calls that a convention makes of a candidate, as data; runs in a rank.

Nothing of the candidate is called. What a call would return stands for itself wherever the
convention hands it on, as a factor of advantages or a function that losses are given to.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from aggverify.conventions import Convention, Site, WholeStep
from aggverify.conventions.adapter_convention import AdapterConvention
from aggverify.engines import EngineSpec
from aggverify.trainer.assignment import WHY_NOT
from aggverify.trainer.local_step import CandidateStep

if TYPE_CHECKING:
    import torch

_AS_IT_IS = (bool, int, str, type(None))


class NoData(Exception):
    """What a convention hands over, or does with a result, cannot be written down."""


def recorded(
    how: Convention, function: str, module: Any, site: Site, engine: EngineSpec
) -> dict[str, Any]:
    """Return a rank's part of one step.

    Of each micro-batch its calls in order, which of them is the loss, and the tokens that its
    trainer counts; or why that is no data.
    """
    try:
        return {"cells": _cells(how, function, module, site, engine)}
    except NoData as error:
        return {WHY_NOT: str(error)}


def _cells(
    how: Convention, function: str, module: Any, site: Site, engine: EngineSpec
) -> list[dict[str, Any]]:
    step = CandidateStep(site, _never, engine)
    calls = _Calls(step.values.clone().requires_grad_(), site)
    candidate = RecordedResult(calls, {"reducer": function})
    if isinstance(how, AdapterConvention):
        call = how.bound(RecordedResult(calls, {"adapter": "call"}), candidate, site)
    else:
        call = how.bind(candidate, _Module(module, calls), site)
    if isinstance(call, WholeStep):
        raise NoData("a whole training step is given a model, which is no data")
    cells = []
    for k in range(step.num_microbatches):
        losses = calls.leaf.index_select(0, step.tokens(k))
        out = call(k, step.given(k, losses))
        made, calls.made = calls.made, []
        loss = calls.written("the loss", out.loss)
        cells.append({"calls": made, "loss": loss, "tokens": step.counted(k)})
    return cells


def _never(k: int, losses: Any) -> NoReturn:
    raise AssertionError("nothing of the candidate is called")


class _Calls:
    """The calls of one step, in order."""

    def __init__(self, leaf: torch.Tensor, site: Site) -> None:
        self.leaf, self._site = leaf, site
        self.made: list[dict[str, Any]] = []
        self._count = 0

    def noted(
        self, called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> RecordedResult:
        """One more call, and what stands for its result."""
        call = {
            "call": called,
            "args": [self.written(f"argument {n + 1}", value) for n, value in enumerate(args)],
            "kwargs": {name: self.written(name, value) for name, value in kwargs.items()},
        }
        self.made.append(call)
        self._count += 1
        return RecordedResult(self, {"result": self._count - 1})

    def written(self, name: str, value: Any) -> Any:
        """Return the value as JSON data: an object of one key names what kind it is.

        Lists stand for lists.

        Raises NoData for what is none.
        """
        import torch

        if isinstance(value, RecordedResult):
            return value.data
        if isinstance(value, _AS_IT_IS):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"builtin": ["float", str(value)]}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, list):
            return [self.written(f"{name}[{n}]", item) for n, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"builtin": ["tuple", self.written(name, list(value))]}
        if isinstance(value, slice):
            return {"builtin": ["slice", value.start, value.stop, value.step]}
        if isinstance(value, Mapping):
            pairs = ([key, self.written(f"{name}[{key!r}]", v)] for key, v in value.items())
            items = [[self.written(f"a key of {name}", k), v] for k, v in pairs]
            return {"builtin": ["dict", items]}
        if isinstance(value, torch.dtype):
            return {"named": str(value)}
        if (group := self._group(value)) is not None:
            return {"group": group}
        if dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace):
            own = {key: self.written(f"{name}.{key}", v) for key, v in _attributes(value)}
            return {"object": own}
        raise NoData(f"{name} is of type {type(value).__name__}, which is no data")

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Its elements; and of those that depend on the losses, on which token's, how much."""
        import torch

        flat = tensor.reshape(-1)
        found: dict[str, Any] = {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "values": self.written("values", flat.detach().tolist()),
        }
        if not tensor.requires_grad:
            return found
        slopes: list[list[float]] = []
        for n, element in enumerate(flat):
            [slope] = torch.autograd.grad(element, self.leaf, retain_graph=True, allow_unused=True)
            if slope is not None:
                slopes += [[n, t, slope[t].item()] for t in slope.nonzero()[:, 0].tolist()]
        return found | {"slopes": self.written("slopes", slopes)}

    def _group(self, value: Any) -> str | None:
        import torch.distributed as dist

        named = (
            (dist.group.WORLD, "world"),
            (self._site.dp_group, "dp"),
            (self._site.cp_group, "cp"),
        )
        return next((name for group, name in named if value is group), None)


class RecordedResult:
    """What a call would return."""

    def __init__(self, calls: _Calls, data: dict[str, Any]) -> None:
        self.calls, self.data = calls, data

    def __call__(self, *args: Any, **kwargs: Any) -> RecordedResult:
        return self.calls.noted(self.data, args, kwargs)

    def __getitem__(self, index: Any) -> RecordedResult:
        return self.calls.noted({"named": "operator.getitem"}, (self, index), {})

    def __iter__(self) -> Iterator[Any]:
        raise NoData("the convention looks into what the reducer returns")

    def __getattr__(self, name: str) -> NoReturn:
        raise NoData(f"the convention reads {name} of what the reducer returns")

    __bool__ = __float__ = __int__ = __len__ = __iter__  # type: ignore[assignment]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> RecordedResult:
        """Note an operation of a tensor with it as one more call."""
        name = function.__name__.strip("_")
        if kwargs or not hasattr(operator, name):
            raise NoData(f"the convention makes {name} of what the reducer returns")
        result = next(arg for arg in args if isinstance(arg, RecordedResult))
        return result.calls.noted({"named": f"operator.{name}"}, args, {})


class _Module:
    """The candidate's module, whose functions are not called either."""

    def __init__(self, module: Any, calls: _Calls) -> None:
        self._module, self._calls = module, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return RecordedResult(self._calls, {"reducer": name}) if callable(value) else value


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what can be read of an object by name: its fields and its properties."""
    if isinstance(value, SimpleNamespace):
        yield from vars(value).items()
        return
    is_property: Callable[[Any], bool] = lambda member: isinstance(member, property)  # noqa: E731
    properties = [name for name, _ in inspect.getmembers(type(value), is_property)]
    for name in (*(f.name for f in dataclasses.fields(value)), *properties):
        if not name.startswith("_"):
            with suppress(Exception):  # a property that this step does not have
                yield name, getattr(value, name)
