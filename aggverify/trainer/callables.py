"""What a candidate's module offers: its callables, how each may be called, and why not."""

from __future__ import annotations

import ast
import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from types import ModuleType
from typing import Any

from aggverify.conventions.candidate_callable import Offer

_ANY = ("*args", "**kwargs")
_LOSS = "compute_loss"
"""The method of Hugging Face's Trainer."""
_MISSING = object()


def offers(module: ModuleType, named: str | None = None) -> list[Offer]:
    """Every public callable, methods of its own classes last.

    Also what the person named where it exists, callable or not.
    """
    written = _Written(module)
    public = {n: v for n, v in vars(module).items() if not n.startswith("_") and _callable(v)}
    found = [written.offer(name, value) for name, value in public.items()]
    own = [offer.name for offer in found if offer.own and isinstance(public[offer.name], type)]
    found += [method for name in own for method in _methods(public[name], name, named)]
    if named is None or named in {offer.name for offer in found}:
        return found
    holder, value = _looked_up(module, named)
    if value is _MISSING:
        return found
    if holder is not None and _is_plain_method(holder, value, named.rpartition(".")[2]):
        return [*found, _method(holder, named, value, tried=True)]
    offer, (owner, _, last) = written.offer(named, value), named.rpartition(".")
    of_object = inspect.ismethod(value) and not isinstance(value.__self__, type)
    return [*found, replace(offer, owner=owner) if of_object and last == _LOSS else offer]


def reached(module: ModuleType, name: str, *, bound: bool) -> Any:
    """Return what has the name, dotted or not.

    ``bound``: a method with an object that is built for it.
    """
    holder, value = _looked_up(module, name)
    last = name.rpartition(".")[2]
    if bound and holder is not None and _is_plain_method(holder, value, last):
        return getattr(_object(holder), last)
    return attrgetter(name)(module)


@functools.cache
def _object(holder: type) -> Any:
    """One object for all calls, as where a file makes it."""
    return holder()


def _looked_up(module: ModuleType, named: str) -> tuple[Any, Any]:
    """Return the value of a dotted name, and the class it was taken from if it was."""
    holder: Any = None
    value: Any = module
    for part in named.split("."):
        holder, value = value, getattr(value, part, _MISSING)
        if value is _MISSING:
            return None, _MISSING
    return (holder if isinstance(holder, type) else None), value


def _is_plain_method(holder: type, value: Any, name: str) -> bool:
    return inspect.isfunction(value) and inspect.isfunction(inspect.getattr_static(holder, name))


def _methods(kind: type, name: str, named: str | None) -> Iterator[Offer]:
    """Public methods of a class and of those of its file that it inherits from, and its call."""
    called = "" if _is_module(kind) else "__call__"  # of a module forward is named
    seen: set[str] = set()
    for base in kind.__mro__:
        if base.__module__ == kind.__module__:
            public = [m for m in vars(base) if m == called or not m.startswith("_")]
            new = [m for m in public if m not in seen]
            seen.update(new)
            for method in new:
                value, dotted = getattr(kind, method, None), f"{name}.{method}"
                if _is_plain_method(kind, value, method):
                    yield _method(kind, dotted, value, tried=dotted == named)


def _method(holder: type, named: str, value: Any, *, tried: bool = False) -> Offer:
    """Return a method as it is called on an object.

    ``tried``: whether to see if that can be built.
    """
    owner, needs = named.rpartition(".")[0], _needs(holder)
    offer = _with_parameters(Offer(named, ()), value)
    if offer.parameters and not offer.parameters[0].startswith("*"):
        offer = replace(offer, parameters=offer.parameters[1:], required=offer.required[1:])
    if (why_not := _why_not(value)) or needs is None:
        return replace(offer, why_not=why_not or f"is a method, and {owner} cannot be built")
    if needs:
        why_not = f"is a method, and {owner} cannot be built without {', '.join(needs)}"
    elif tried:
        try:
            _object(holder)
        except Exception as error:
            why_not = f"is a method, and {owner}() raises {type(error).__name__}: {error}"
    return replace(offer, owner=owner, needs=needs, why_not=why_not)


def _callable(value: Any) -> bool:
    # Generic aliases (Callable[..., Tensor]) can be called too, and are no functions.
    return callable(value) and type(value).__module__ not in ("typing", "types")


class _Written:
    """What the module's source shows: which names it imports, and the parameters of its defs."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module.__name__
        self._imported: set[str] = set()
        self._made: set[str] = set()
        self._defs: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        for statement in _statements(_parsed(module)):
            self._read(statement)

    def _read(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._imported |= {a.asname or a.name.partition(".")[0] for a in statement.names}
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            self._made.add(statement.name)
            self._defs[statement.name] = statement
        elif isinstance(statement, ast.ClassDef):
            self._made.add(statement.name)
        else:
            stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
            self._made |= {n.id for n in stored if isinstance(n.ctx, ast.Store)}

    def offer(self, name: str, value: Any) -> Offer:
        """Return the value under its name."""
        try:
            offer = replace(_described(name, value), own=self._own(name, value))
        except Exception:  # an object whose attributes raise
            return Offer(name, _ANY)
        if name in self._defs and all(p.startswith("*") for p in offer.parameters):
            # A decorator without functools.wraps: the def under it shows what it takes.
            return _as_written(offer, self._defs[name].args)
        return offer

    def _own(self, name: str, value: Any) -> bool:
        name = name.partition(".")[0]
        if name in self._made:
            return True
        return name not in self._imported and getattr(value, "__module__", "") == self._module


def _parsed(module: ModuleType) -> list[ast.stmt]:
    try:
        return ast.parse(inspect.getsource(module)).body
    except Exception:  # no source at hand, or none that can be read
        return []


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at import, those inside if, try, with and loops too."""
    for statement in body:
        inner = [
            part
            for part in ast.iter_child_nodes(statement)
            if isinstance(part, ast.stmt | ast.ExceptHandler)
        ]
        scope = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if scope or not inner:
            yield statement
        else:
            handlers = [p for p in inner if isinstance(p, ast.ExceptHandler)]
            plain = [p for p in inner if isinstance(p, ast.stmt)]
            yield from _statements([*plain, *(s for h in handlers for s in h.body)])


def _as_written(offer: Offer, signature: ast.arguments) -> Offer:
    plain = [a.arg for a in (*signature.posonlyargs, *signature.args)]
    keyword_only = [a.arg for a in signature.kwonlyargs]
    with_default = set(plain[len(plain) - len(signature.defaults) :]) | {
        a for a, d in zip(keyword_only, signature.kw_defaults, strict=True) if d is not None
    }
    stars = [f"*{signature.vararg.arg}"] if signature.vararg else []
    last = [f"**{signature.kwarg.arg}"] if signature.kwarg else []
    return replace(
        offer,
        parameters=(*plain, *stars, *keyword_only, *last),
        required=tuple(a for a in (*plain, *keyword_only) if a not in with_default),
        keyword_only=tuple(keyword_only),
    )


def _described(name: str, value: Any) -> Offer:
    if isinstance(value, type):
        return _of_class(name, value)
    if not callable(value):
        if (trainer := _of_trainer(name, type(value))) is not None:
            return trainer
        return Offer(name, (), why_not=f"is of type {type(value).__name__}, no function")
    called = value if inspect.isroutine(value) else _what_is_called(value)
    offer = _with_parameters(Offer(name, (), why_not=_why_not(called)), called)
    if inspect.isbuiltin(value) and offer.parameters == _ANY and not offer.why_not:
        offer = replace(offer, why_not="is built in, and its parameters cannot be read")
    return offer


def _what_is_called(value: Any) -> Any:
    """Return the function that runs when an object is called."""
    if isinstance(value, functools.partial):
        return value
    forward = getattr(value, "forward", None)
    if _is_module(type(value)) and callable(forward):
        return forward  # nn.Module's own __call__ takes anything
    return value


def _is_module(kind: type) -> bool:
    return any(c.__module__ == "torch.nn.modules.module" for c in kind.__mro__)


def _of_class(name: str, kind: type) -> Offer:
    """Return a class with what its objects take when they are called, and why it is no reducer.

    A trainer comes with what its loss takes: a convention makes the object.
    """
    if (trainer := _of_trainer(name, kind)) is not None:
        return trainer
    method = getattr(kind, "forward" if _is_module(kind) else "__call__", None)
    if any(c.__module__ == "torch.autograd.function" for c in kind.__mro__):
        return Offer(name, (), why_not=f"is an autograd function: name {name}.apply")
    if not inspect.isfunction(method):
        made = Offer(name, (), why_not="is a class whose objects cannot be called")
        return _with_parameters(made, kind)
    offer = _with_parameters(Offer(name, ()), method)
    return replace(
        offer,
        parameters=offer.parameters[1:],
        required=offer.required[1:],
        why_not=(
            f"is a class: name {name}.{method.__name__}"
            if _needs(kind) == ()
            else f"is a class: write `reduce = {name}(...)` into the file and name reduce"
        ),
    )


def _of_trainer(name: str, kind: type) -> Offer | None:
    """Return a class, or an object of one, with the loss method of Hugging Face's Trainer.

    The method has that loss's parameters.
    """
    method = getattr(kind, _LOSS, None)
    if not inspect.isfunction(method):
        return None
    made = Offer(name, (), why_not=f"is a trainer: name {name} to check its {_LOSS}")
    offer = _with_parameters(made, method)
    return offer if offer.parameters[:3] == ("self", "model", "inputs") else None


def _needs(kind: type) -> tuple[str, ...] | None:
    """Return what the constructor cannot be called without; None where that is not known."""
    try:
        own = inspect.signature(kind).parameters
    except Exception:
        return None
    return tuple(_without_default(own))


def _without_default(own: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    for name, p in own.items():
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            yield name


def _why_not(function: Any) -> str:
    """Why a call of it gives no loss; "" where it may."""
    while isinstance(function, functools.partial):
        function = function.func
    kinds: Mapping[str, Callable[[Any], bool]] = {
        "is an async function: a call gives a coroutine and no loss": inspect.iscoroutinefunction,
        "is an async generator: a call gives no loss": inspect.isasyncgenfunction,
        "is a generator function (it yields): a call gives a generator and no loss": (
            inspect.isgeneratorfunction
        ),
    }
    looked_at = [function]
    if not inspect.isroutine(function):
        looked_at.append(inspect.getattr_static(type(function), "__call__", None))
    return next((why for why, is_one in kinds.items() if any(map(is_one, looked_at))), "")


def _with_parameters(offer: Offer, function: Any) -> Offer:
    """Return the offer with its parameters, as far as they can be read."""
    try:
        own = inspect.signature(function).parameters
        parameters = tuple(map(_starred, own.values()))
        bare = _without_default(own)
        only = [n for n, p in own.items() if p.kind is p.KEYWORD_ONLY]
    except Exception:  # built in, or a signature of the person's own making
        return replace(offer, parameters=_ANY)
    made = replace(offer, parameters=parameters, required=tuple(bare), keyword_only=tuple(only))
    return replace(made, values=_literals(function))


def _literals(function: Any) -> dict[str, tuple[str, ...]]:
    """Return the texts of every parameter that is a Literal, or may be one."""
    hints: dict[str, Any] = {}
    with suppress(Exception):  # names that are there for a type checker only
        hints = typing.get_type_hints(getattr(function, "func", function))
    found = {name: tuple(_texts(hint)) for name, hint in hints.items()}
    return {name: texts for name, texts in found.items() if texts}


def _texts(hint: Any) -> Iterator[str]:
    if typing.get_origin(hint) is typing.Literal:
        yield from (value for value in typing.get_args(hint) if isinstance(value, str))
        return
    for part in typing.get_args(hint):
        yield from _texts(part)


def _starred(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    var = parameter.kind is inspect.Parameter.VAR_KEYWORD
    return f"**{parameter.name}" if var else parameter.name
