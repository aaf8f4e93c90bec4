"""Import the candidate and describe what it offers; runs in template and rank processes."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from aggverify.conventions import CONVENTIONS, Convention, convention
from aggverify.conventions.adapter_functions import loaded
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.run_against import run_against
from aggverify.errors import InputError, shown
from aggverify.trainer.callables import offers
from aggverify.trainer.constants import codes, constants, dtypes
from aggverify.trainer.environment_uses import environment_uses
from aggverify.trainer.source import SourceFile

_LONGEST = 1 << 20
"""Characters of a declaration."""


def load(target: dict[str, str]) -> ModuleType:
    """Import the candidate's module from a path or by dotted name."""
    if "module" in target:
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(target["module"])
    path = Path(target["path"])
    sys.path.insert(0, str(path.parent))
    name = f"_candidate_{path.stem}"  # never shadows a real module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a .py file, checked by the parent
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def load_adapter(path: str) -> Convention:
    """Return a person's own convention, imported; raises ImportError that names its file."""
    try:
        loaded(path)
        return convention(path)
    except Exception as error:
        raise ImportError(f"the adapter {path}: {type(error).__name__}: {error}") from error


def described(
    module: ModuleType, named: str | None = None, source: SourceFile | None = None
) -> dict[str, Any]:
    """Describe what it offers, with what the person named.

    Also the numbers in the code of each, what its source holds, and the module's own declaration.
    """
    found = offers(module, named)
    own = [offer.name for offer in found if offer.own]
    return {
        "offers": [asdict(offer) for offer in found],
        "constants": {name: _read(constants, module, name) for name in own},
        "dtypes": {name: _read(dtypes, module, name) for name in own},
        "surroundings": {name: _read(_surroundings, module, name) for name in own},
        "functions": source.functions if source else [],
        "texts": source.texts if source else [],
        "conditions": [astuple(each) for each in source.conditions.all] if source else [],
        "declared": _plain(getattr(module, "AGGVERIFY", None)),
        "environment": environment(),
        "versions": versions(),
    }


def check_described(description: Mapping[str, Any]) -> None:
    """Raise InputError unless it is as :func:`described` makes it.

    It comes from a process that has run the module.
    """
    try:
        for offer in map(Offer.from_json, description["offers"]):
            _need(isinstance(offer.own, bool))
            _texts([offer.name, offer.why_not, offer.owner, *offer.parameters, *offer.required])
            _texts([*offer.keyword_only, *offer.needs])
            _texts([*offer.values, *(text for own in offer.values.values() for text in own)])
        for name, numbers in description["constants"].items():
            _texts([name])
            _need(all(isinstance(number, int | float) for number in numbers))
        for some in (*description["surroundings"].values(), *description["dtypes"].values()):
            _texts(some)
        for name, lines in description["functions"]:
            _texts([name])
            _need(all(isinstance(line, int) for line in lines))
        for first, text in description["texts"]:
            _need(isinstance(first, int))
            _texts(text)
        _need(len(description["texts"]) == len(description["functions"]))
        for function, line, text, *ways in description["conditions"]:
            _texts([function, text])
            _need(len(ways) == 2 and all(isinstance(n, int) for n in (line, *ways)))
        _texts([*description["environment"], *description["environment"].values()])
        _texts([*description["versions"], *description["versions"].values()])
        _need(isinstance(description["declared"], dict | str | None))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"its own description cannot be read ({error!r:.100})") from None


def _texts(values: Any) -> None:
    _need(isinstance(values, list) and all(isinstance(value, str) for value in values))


def _need(right: bool) -> None:
    if not right:
        raise ValueError("of another kind")


def environment() -> dict[str, str]:
    """Return what the bits of a result may depend on apart from the code."""
    import torch

    return {
        "torch": torch.__version__,
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    }


def versions() -> dict[str, str]:
    """Of the packages that conventions have been run against, those that are imported by now."""
    names = {one.name for how in CONVENTIONS.values() for one in run_against(how)}
    found = {}
    for name in sorted(names):
        if name.replace("-", "_") in sys.modules:
            with suppress(PackageNotFoundError):
                found[name] = version(name)
    return found


def _read(look: Callable[[Any], list[Any]], module: ModuleType, name: str) -> list[Any]:
    """Return what there is in an object's code.

    Nothing of a name that is none, or whose attributes raise.
    """
    try:
        return look(attrgetter(name)(module))
    except Exception:
        return []


def _surroundings(value: Any) -> list[str]:
    return environment_uses(codes(value))


def _plain(declared: Any) -> Any:
    """Return the declaration if it is plain data; otherwise its text, for the parent to refuse."""
    if declared is None:
        return None
    try:
        plain = isinstance(declared, dict) and len(json.dumps(declared)) <= _LONGEST
    except (TypeError, ValueError, RecursionError):  # an object, an integer of too many digits
        plain = False
    return declared if plain else shown(declared)
