"""What a module offers: every callable with how it may be called, or why it may not."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from aggverify.conventions import Offer
from aggverify.trainer.callables import offers
from aggverify.trainer.loading import load

FILE = """
    import functools
    from functools import partial as bind, reduce
    from collections import *
    import torch

    def total(losses, batch, scale=1.0): ...
    part = bind(total, scale=2.0)
    fixed = bind(total, None)

    class Box:
        def __init__(self, scale=1.0): ...
        def __call__(self, losses, batch): ...
        def method(self, losses, batch): ...
        async def waits(self, losses, batch): ...
        def _private(self, losses, batch): ...
        @staticmethod
        def static(losses, batch): ...
        @classmethod
        def made(cls, losses, batch): ...

    class Needy(Box):
        def __init__(self, scale): ...

    class Refusing:
        def __init__(self):
            raise ValueError("not here")
        def loss(self, losses, batch): ...

    class Layer(torch.nn.Module):
        def forward(self, losses, batch): ...

    class Function(torch.autograd.Function): ...
    class Plain: ...

    box, layer = Box(), Layer()
    bound = box.method

    def bare(function):
        def call(*a, **k):
            return function(*a, **k)
        return call

    @bare
    def decorated(losses, batch, /, kl, *, scale=1.0, **more): ...

    if True:
        try:
            import nothing_of_that_name
        except ImportError:
            def fallback(losses, batch): ...

    anonymous = lambda losses, batch: ...
    async def waits(losses, batch): ...
    def yields(losses, batch):
        yield
    async def streams(losses, batch):
        yield
    late = bind(waits)
    class Waiter:
        async def __call__(self, losses, batch): ...
    waiter = Waiter()
    builtin = torch.sum
    keyword = lambda losses, batch, *, kl: ...
    def _hidden(losses, batch): ...
    CONFIG = {}
"""
BOTH = ("losses", "batch")


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "candidate.py"
    path.write_text(textwrap.dedent(FILE))
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = load({"path": str(path)})
    monkeypatch.delitem(sys.modules, module.__name__)

    def look(name: str, named: str | None = None) -> Offer | None:
        return next((o for o in offers(module, named or name) if o.name == name), None)

    return look


@pytest.mark.parametrize(
    "name",
    [
        "bound",
        "box",
        "layer",
        "Box.static",
        "Box.made",
        "box.method",
        "layer.forward",
        "fallback",
        "anonymous",
        "_hidden",
    ],
)
def test_each_kind_of_callable_is_taken(offered: Any, name: str) -> None:
    assert offered(name) == Offer(name, BOTH, BOTH)
    assert offered(name).takes(2)


def test_parameters_are_those_of_the_call(offered: Any) -> None:
    part = offered("part")
    assert (part.parameters, part.required) == ((*BOTH, "scale"), BOTH)
    assert part.takes(2)
    assert offered("fixed").parameters == ("batch", "scale")
    assert not offered("fixed").takes(3)
    keyword = offered("keyword")
    assert (keyword.keyword_only, keyword.takes(2), keyword.takes(3)) == (("kl",), False, False)
    # No functools.wraps: the def under the decorator says what it takes.
    decorated = offered("decorated")
    assert decorated.parameters == (*BOTH, "kl", "scale", "**more")
    assert (decorated.required, decorated.keyword_only) == ((*BOTH, "kl"), ("scale",))
    inner = offered("bare")
    assert inner.parameters == ("function",)


def test_what_the_file_makes_is_its_own(offered: Any) -> None:
    for name in ("part", "builtin", "fallback", "box", "layer", "decorated"):
        assert offered(name).own, name
    for name in ("bind", "reduce", "OrderedDict"):
        assert not offered(name).own, name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("waits", "is an async function"),
        ("late", "is an async function"),
        ("waiter", "is an async function"),
        ("yields", "is a generator function"),
        ("streams", "is an async generator"),
        ("builtin", "is built in, and its parameters cannot be read"),
        ("Box", "is a class: name Box.__call__"),
        ("Needy", "is a class: write `reduce = Needy(...)` into"),
        ("Layer", "is a class: name Layer.forward"),
        ("Needy.method", "is a method, and Needy cannot be built without scale"),
        ("Refusing.loss", "is a method, and Refusing() raises ValueError: not here"),
        ("Box.waits", "is an async function"),
        ("Function", "is an autograd function: name Function.apply"),
        ("Plain", "is a class whose objects cannot be called"),
        ("CONFIG", "is of type dict, no function"),
    ],
)
def test_what_gives_no_loss_says_why(offered: Any, name: str, why: str) -> None:
    assert why in offered(name).why_not


def test_what_is_not_named_is_public_and_not_dotted(offered: Any) -> None:
    for name in ("_hidden", "CONFIG", "box.method", "Box._private", "Box.static"):
        assert offered(name, "total") is None
    assert offered("nothing.there") is None
    assert offered("box.nothing") is None


def test_a_method_is_offered_with_what_its_object_needs(offered: Any) -> None:
    for name in ("Box.method", "Box._private", "Box.__call__", "Layer.forward"):
        assert offered(name) == Offer(name, BOTH, BOTH, owner=name.partition(".")[0])
    needy = offered("Needy.method")
    assert (needy.owner, needy.needs, needy.parameters) == ("Needy", ("scale",), BOTH)
    assert needy.unbound.parameters == needy.unbound.required == ("self", *BOTH)
    # The ones that are not named; whether such an object can be built is not tried.
    assert offered("Box.method", "total") == offered("Box.method")
    assert offered("Refusing.loss", "total").why_not == ""
    assert offered("Box.__call__", "total") == offered("Box.__call__")
    assert offered("Layer.forward", "total") and not offered("Layer.__call__", "total")


def test_an_object_whose_attributes_raise_is_only_unknown() -> None:
    class Odd:
        @property
        def forward(self) -> object:
            raise RuntimeError

        @property
        def __signature__(self) -> object:
            raise RuntimeError

        def __call__(self) -> None: ...

    module = type(sys)("odd")
    module.odd = Odd()  # type: ignore[attr-defined]
    [offer] = offers(module)
    assert offer.parameters == ("*args", "**kwargs")
