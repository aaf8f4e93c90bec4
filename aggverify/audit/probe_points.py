"""Probe points: where frameworks have per-token losses, patched in as their modules are imported.

Runs in every process of a job before anything else, so it imports no torch; a module that has no
such function is left as it is.

Values are Python expressions. They may use the arguments of the function, and of the one that it is
called ``within``; what it returns (``out``) and the ``cells`` of that one's closure; the ``caller``
and its ``line`` of code; and which call of what it returns this is (``nth``).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

VARIABLE = "AGGVERIFY_PROBE_AT"
KINDS = ("losses", "log_probs", "logits")
VALUES = (
    *("mask", "advantages", "old_log_probs", "labels", "ignored", "sample_ids", "group_ids"),
    *("rollout_ids", "positions", "lengths", "count", "name", "when"),
)
Point = Mapping[str, str]
_around: list[dict[str, Any]] = []
"""The arguments of the functions that points are within, innermost last."""


def install() -> None:
    """Patch what is named in the environment, now or as soon as it is imported."""
    points = json.loads(os.environ.get(VARIABLE) or "[]")
    wanted: dict[str, list[Point]] = {}
    for point in points:
        wanted.setdefault(point["module"], []).append(point)
    for name in [name for name in wanted if name in sys.modules]:
        _patch(sys.modules[name], wanted.pop(name))
    if wanted:
        sys.meta_path.insert(0, _Finder(wanted))


class _Finder(MetaPathFinder):
    """Finds the modules as others do, and patches them once they were run."""

    def __init__(self, wanted: dict[str, list[Point]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        points = self._wanted.pop(name, None)
        if points is None:
            return None
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, points)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, points: Sequence[Point]) -> None:
        self._loader, self._points = loader, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _patch(module, self._points)


def _patch(module: ModuleType, points: Sequence[Point]) -> None:
    for point in points:
        if point.get("within"):
            _replace(module, point["within"], _surrounding)
        _replace(module, point["function"], functools.partial(_probing, point))


def _replace(
    module: ModuleType, path: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part, None)
    function = inspect.getattr_static(owner, name, None)
    if isinstance(function, staticmethod):
        setattr(owner, name, staticmethod(wrap(function.__func__)))
    elif callable(function):
        setattr(owner, name, wrap(function))


def _surrounding(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def surrounding(*args: Any, **how: Any) -> Any:
        with _inside(_bound(function, args, how)):
            return function(*args, **how)

    return surrounding


@contextmanager
def _inside(arguments: dict[str, Any]) -> Iterator[None]:
    _around.append(arguments)
    try:
        yield
    finally:
        _around.pop()


def _probing(point: Point, function: Callable[..., Any]) -> Callable[..., Any]:
    kind = next(kind for kind in KINDS if kind in point)
    where = point[kind]

    @functools.wraps(function)
    def probing(*args: Any, **how: Any) -> Any:
        known = (_around[-1] if _around else {}) | _bound(function, args, how)
        frame = sys._getframe(1)
        known["caller"] = f"{frame.f_code.co_name}:{frame.f_lineno}"
        known["line"] = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if where in known:  # an argument
            values = _probe(point, kind, known[where], known)
            return _called_with(function, args, how, where, values)
        known["out"] = out = function(*args, **how)
        if where == "out()":  # the argument of what is returned, each time it is called
            numbers = itertools.count()
            known["cells"] = inspect.getclosurevars(out).nonlocals

            def returned(values: Any, *more: Any) -> Any:
                if getattr(values, "requires_grad", False):
                    given = known | {"nth": next(numbers)}
                    values = _probe(point, kind, values, given)
                return out(values, *more)

            return returned
        if where == "out":
            return _probe(point, kind, out, known)
        index = int(where.removeprefix("out[").removesuffix("]"))
        items = list(out)
        items[index] = _probe(point, kind, items[index], known)
        return tuple(items)

    return probing


def _bound(function: Callable[..., Any], args: Any, how: Any) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*args, **how)
    bound.apply_defaults()
    return dict(bound.arguments)


def _called_with(function: Callable[..., Any], args: Any, how: Any, name: str, value: Any) -> Any:
    """Call the function with one argument replaced, however that was passed."""
    if name in how:
        return function(*args, **{**how, name: value})
    at = list(inspect.signature(function).parameters).index(name)
    return function(*args[:at], value, *args[at + 1 :], **how)


def _probe(point: Point, kind: str, values: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(values, list):  # one for each sample, as are lists of the same length
        lists = {k: v for k, v in known.items() if isinstance(v, list) and len(v) == len(values)}
        each = ({k: v[n] for k, v in lists.items()} for n in range(len(values)))
        pairs = zip(values, each, strict=True)
        return [_probe(point, kind, value, {**known, **own}) for value, own in pairs]
    folder = os.environ.get("AGGVERIFY_PROBE")
    if not folder or not getattr(values, "requires_grad", False):
        return values
    import torch

    from aggverify.audit.recorder import recorder

    names = {**known, "torch": torch, "values": values}
    found = {key: eval(_code(point[key]), names) for key in VALUES if key in point}
    if not found.pop("when", True):
        return values
    mine, mask = recorder(folder), found.pop("mask", None)
    name = found.pop("name", "loss")
    if kind == "losses":
        return mine.losses(values, mask, name, None, found)
    if kind == "log_probs":
        advantages, old = found.pop("advantages"), found.pop("old_log_probs", None)
        return mine.log_probs(values, advantages, old, mask, None, found)
    return mine.logits(values, found.pop("labels"), found.pop("ignored", -100), found)


@functools.cache
def _code(text: str) -> CodeType:
    return compile(text, f"<probe point: {text}>", "eval")
