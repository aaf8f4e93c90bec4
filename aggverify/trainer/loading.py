"""Import the candidate and say what it offers; runs in template and rank processes."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


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


def described(module: ModuleType) -> dict[str, Any]:
    """The functions on offer, with parameter names, and the module's own declaration."""
    offers = []
    for name, value in vars(module).items():
        if inspect.isroutine(value) and not name.startswith("_"):
            offers.append({"name": name} | _parameters(value))
    return {"offers": offers, "declared": _plain(getattr(module, "AGGVERIFY", None))}


def _parameters(function: Any) -> dict[str, list[str]]:
    """Names of all parameters, and of those without a default."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {"parameters": [], "required": []}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    bare = [n for n, p in found.items() if p.default is p.empty and p.kind not in several]
    return {"parameters": list(found), "required": bare}


def _plain(declared: Any) -> Any:
    """The declaration if it is plain data; otherwise its text, for the parent to refuse."""
    if declared is None or isinstance(declared, dict):
        return declared
    return repr(declared)
