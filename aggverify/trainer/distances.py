"""How far a condition was from going the other way, read off the frame that has just decided it.

Nothing of the candidate's is run for it: an expression is worked out again out of names, numbers,
arithmetic and what is known to change nothing; of any other one the distance is infinite.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any

Sides = tuple[ast.expr, ast.expr | None]
"""What is compared with what; None for 0."""
MOST = 2_000
"""Distances that are read in one case: by then the nearest of a long loop is seen."""
_LARGEST_POWER = 64
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_OF_NUMBERS: tuple[Any, ...] = (abs, float, int, max, min, round, sum)
_METHODS = frozenset(("bit_length", "element_size", "item", "numel", "size"))
_CONTAINERS = (list, tuple, dict, set, frozenset)
_OF_KINDS = frozenset(("callable", "hasattr", "isinstance", "issubclass"))
"""Functions that ask nothing of sizes."""


class _Unknown(Exception):
    """The distance is not known."""


def sides(test: ast.expr) -> Sides | None:
    """Of a condition that compares two values, or one with 0: these; None for any other."""
    match test:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq()
                         | ast.NotEq()], comparators=[right]):  # fmt: skip
            return left, right
        case ast.Call(func=ast.Name(id=name)) if name in _OF_KINDS:
            return None
        case (ast.Name() | ast.Attribute() | ast.Subscript() | ast.BinOp() | ast.NamedExpr()
              | ast.Call()):  # fmt: skip
            return test, None
    return None


@dataclass(slots=True)
class Distances:
    """Of one case: of each outcome of a condition the least distance from the other one."""

    least: dict[int, float] = field(default_factory=dict)
    """By ``conditions.outcome``; infinite where it is not known."""
    left: int = MOST

    def add(self, outcome: int, compared: Sides | None, frame: FrameType) -> None:
        """What has just been decided in this frame."""
        if compared is None or not self.left:
            return
        self.left -= 1
        before = self.least.get(outcome, math.inf)
        self.least[outcome] = min(before, distance(compared, frame))


def distance(compared: Sides, frame: FrameType) -> float:
    """Between both sides, as the frame's names are now; infinite where it is not known."""
    known = (frame.f_locals, frame.f_globals, vars(builtins))
    left, right = compared
    try:
        other = 0.0 if right is None else _number(_value(right, known))
        apart = float(abs(_number(_value(left, known)) - other))
    except Exception:  # no fault of the candidate's, which has got past it
        return math.inf
    return math.inf if math.isnan(apart) else apart


Names = tuple[Mapping[str, Any], ...]


def _value(node: ast.expr, known: Names) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) | ast.NamedExpr(target=ast.Name(id=name)):
            return _named(name, known)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_number(_value(operand, known)))
        case ast.BinOp(left=left, op=how, right=right) if type(how) in _ARITHMETIC:
            return _combined(type(how), *(_number(_value(side, known)) for side in (left, right)))
        case ast.Attribute(value=owner, attr=name):
            return _attribute(_value(owner, known), name)
        case ast.Subscript(value=owner, slice=place):
            return _element(_value(owner, known), _value(place, known))
        case ast.Call(func=called, args=arguments, keywords=[]):
            return _called(called, [_value(argument, known) for argument in arguments], known)
    raise _Unknown


def _named(name: str, known: Names) -> Any:
    for names in known:
        if name in names:
            return names[name]
    raise _Unknown


def _number(value: Any) -> Any:
    """A number as it is, one in a tensor of the processor's read; not true or false."""
    if _is_tensor(value) and value.numel() == 1 and value.device.type == "cpu":
        value = value.detach().item()
    if type(value) not in (int, float):
        raise _Unknown
    return value


def _combined(how: type[ast.operator], left: Any, right: Any) -> Any:
    if how in (ast.Pow, ast.LShift) and not abs(right) <= _LARGEST_POWER:
        raise _Unknown
    return _ARITHMETIC[how](left, right)


def _attribute(owner: Any, name: str) -> Any:
    """What is stored there. A property is somebody's code: only our own is run, or torch's."""
    if issubclass(type(owner), ModuleType):
        return vars(owner)[name]
    if _is_tensor(owner):
        return {"shape": owner.shape, "ndim": owner.ndim}[name]
    usual: Any = (object.__getattribute__, SimpleNamespace.__getattribute__)
    if type(owner).__getattribute__ not in usual:
        raise _Unknown
    stored = inspect.getattr_static(owner, name)
    own = getattr(owner, "__dict__", {})
    plain = isinstance(stored, MemberDescriptorType) or (name in own and own[name] is stored)
    if type(stored) is property:
        plain = str(getattr(stored.fget, "__module__", "")).startswith("aggverify.")
    if not plain:
        raise _Unknown
    return getattr(owner, name)


def _element(owner: Any, place: Any) -> Any:
    if type(place) in (int, str) and (type(owner) in (list, tuple, dict) or _is_shape(owner)):
        return owner[place]
    raise _Unknown


def _called(called: ast.expr, arguments: list[Any], known: Names) -> Any:
    if isinstance(called, ast.Attribute):
        owner = _value(called.value, known)
        if owner is math:
            return getattr(math, called.attr)(*map(_number, arguments))
        if called.attr in _METHODS and (type(owner) is int or _is_tensor(owner)):
            return getattr(owner, called.attr)(*arguments)
        raise _Unknown
    function = _value(called, known)
    if function is len and len(arguments) == 1:
        if type(arguments[0]) in _CONTAINERS or _is_shape(arguments[0]):
            return len(arguments[0])
        if _is_tensor(arguments[0]):
            return arguments[0].shape[0]
    elif any(function is one for one in _OF_NUMBERS):
        if len(arguments) == 1 and type(arguments[0]) in (list, tuple):
            return function(list(map(_number, arguments[0])))
        return function(*map(_number, arguments))
    raise _Unknown


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def _is_shape(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is torch.Size
