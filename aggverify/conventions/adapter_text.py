"""An adapter as the text of a file.

It fails in one line until the person has filled in what they alone can know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from aggverify.conventions.adapter_claims import assumed, claims
from aggverify.conventions.adapter_draft import OBJECT, Adapter
from aggverify.conventions.adapter_forms import CallHints
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.parameters import COUNTS, Role, role

_SHOWN = COUNTS | {Role.CLIP, Role.COEFFICIENT}
"""Roles whose guess is written next to the argument."""
_CONFIRM = "  # assumed, and printed by every check: delete what is right"
ASSUMED = "assumed"
_FOUND = "  # found by calling it: is it that?"


@dataclass(frozen=True, slots=True)
class ImportSource:
    """Where an adapter imports the function from: a module by name, or a file next to it."""

    module: str | None
    file: str | None = None
    """The file's name, where its module's cannot be imported by name."""


def adapter_file(function: str) -> str:
    """Return the name of a function's adapter file, next to the function's file."""
    return f"aggverify_{function.replace('.', '_')}.py"


def adapted(offer: Offer, origin: ImportSource, known: CallHints | None = None) -> str:
    """Return the text of a file that offers ``reduce(losses, batch)`` through the function."""
    return "\n".join(_lines(Adapter(offer, known or CallHints()), origin)) + "\n"


def _lines(adapter: Adapter, origin: ImportSource) -> Iterator[str]:
    whose = origin.file or origin.module
    yield f'"""How a trainer calls {adapter.offer.name} of {whose}, as aggverify knows it."""'
    yield ""
    yield from _imports(adapter, origin)
    yield ""
    yield from _object(adapter)
    yield from _left_to_fill_in(adapter)
    yield from _mode(adapter)
    yield "AGGVERIFY = {"
    yield from (f"    {claim}" for claim in _claims(adapter))
    if guesses := assumed(adapter):
        yield f'    "{ASSUMED}": {{{_CONFIRM}'
        yield from (f'        "{name}": {json.dumps(what)},' for name, what in guesses.items())
        yield "    },"
    yield "}"
    yield ""
    yield ""
    yield "def reduce(losses, batch):"
    yield from (f"    {line}" for line in _call(adapter))


def _imports(adapter: Adapter, origin: ImportSource) -> Iterator[str]:
    head = adapter.offer.name.partition(".")[0]
    name = adapter.imported
    if origin.module is not None:
        yield "import torch"
        yield ""
        yield f"from {origin.module} import {head}" + ("" if head == name else f" as {name}")
        return
    yield "import importlib.util"
    yield "import pathlib"
    yield ""
    yield "import torch"
    yield ""
    yield f"_path = pathlib.Path(__file__).with_name({origin.file!r})"
    yield '_spec = importlib.util.spec_from_file_location("_adapted", _path)'
    yield "_module = importlib.util.module_from_spec(_spec)"
    yield "_spec.loader.exec_module(_module)"
    yield f"{name} = _module.{head}"


def _object(adapter: Adapter) -> Iterator[str]:
    """Yield what a method is called on."""
    if not (owner := adapter.offer.owner):
        return
    if adapter.offer.why_not:
        text = f"say below how {owner} is built, then delete this line"
        yield f"raise NotImplementedError({text!r})"
    yield f"{OBJECT} = {adapter.built}"
    yield ""


def _left_to_fill_in(adapter: Adapter) -> Iterator[str]:
    names = [name.upper() for name in (*adapter.known.left, *adapter.unknown)]
    if adapter.known.trouble and not adapter.unknown:
        text = f"the call below comes to no result: {adapter.known.trouble}"
        yield "# put the call right, then delete this line"
        yield f"raise NotImplementedError({text!r})"
    if names:
        text = " and ".join(names)
        yield f'raise NotImplementedError("say below what {text} is, then delete this line")'
        yield from (f"{name} = None" for name in names)


def _mode(adapter: Adapter) -> Iterator[str]:
    if adapter.divided:
        yield f"DIVISOR = {claims(adapter)['divisor']!r}  # yours"
    if adapter.mode is None:
        return
    first, *others = adapter.choices
    yield f"{adapter.mode.upper()} = {_written(first)}"
    yield f"# or {', '.join(map(_written, others))}"
    divided = [n for n in others if adapter.values_of(adapter.mode)[n] == "constant"]
    yield from (f'# ({_written(n)} with "divisor": 16.0, or yours, below)' for n in divided)


def _claims(adapter: Adapter) -> Iterator[str]:
    """Yield the claims as they are written: by a name of the file where there is one."""
    written = {key: _literal(value) for key, value in claims(adapter).items()}
    written |= {name: name.upper() for name in adapter.known.left}
    if adapter.divided:
        written["divisor"] = "DIVISOR"
    if adapter.mode is not None and "mode" not in adapter.known.left:
        text, values = adapter.mode.upper(), adapter.values_of(adapter.mode)
        written["mode"] = text
        if all(isinstance(value, bool) for value in values):
            written["mode"] = f'"{values[True]}" if {text} else "{values[False]}"'
        if adapter.is_factory and adapter.mode == "calculate_per_token_loss":
            written["engine"] = f'"megatron-token" if {text} else "megatron-sample"'
    for key in ("mode", "divisor", "engine", "without"):
        if key in written:
            found = key in adapter.known.found and written[key] != key.upper()
            yield f'"{key}": {written[key]},' + (_FOUND if found else "")


def _call(adapter: Adapter) -> Iterator[str]:
    yield from adapter.shape.value.before
    several = adapter.returns_several
    yield f"loss = {adapter.called}(" if several else f"return {adapter.called}("
    yield from (f"    {argument}" for argument in _arguments(adapter))
    yield ")(losses)" if adapter.is_factory else ")"
    if several:
        known = adapter.known.first is not None
        yield "return loss[0]" if known else "return loss[0] if isinstance(loss, tuple) else loss"


def _arguments(adapter: Adapter) -> Iterator[str]:
    offer = adapter.offer
    in_order = [p for p in offer.parameters if not p.startswith("*")]
    for n, parameter in enumerate(adapter.given):
        # By position as long as none before it is left out: it may be positional only.
        place = in_order[n] == parameter and parameter not in offer.keyword_only
        name = "" if place and parameter in offer.required else f"{parameter}="
        yield f"{name}{adapter.expression(parameter)},{_comment(adapter, parameter)}"


def _comment(adapter: Adapter, parameter: str) -> str:
    if parameter in adapter.known.found:
        return _FOUND
    what = role(parameter)
    shown = what in _SHOWN and parameter not in adapter.known.arguments
    return f"  # {what.value}" if what is not None and shown else ""


def _written(value: str | bool) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
