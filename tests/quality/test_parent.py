"""The process that a person starts never imports torch, over whatever modules: it takes seconds.

Import contracts see direct imports only: a rank's module, imported for one of its names, has torch.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.conftest import ROOT

CODE = """
import importlib, pkgutil, sys

rooms = sys.argv[1:]
for room in rooms:
    importlib.import_module(room)
    for found in pkgutil.walk_packages(sys.modules[room].__path__, f"{room}."):
        if not found.name.endswith(".__main__") and ".templates." not in found.name:
            importlib.import_module(found.name)
        if "torch" in sys.modules:
            sys.exit(f"{found.name} imports torch")
"""


def rooms() -> list[str]:
    """Those that the contract is about."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in settings["contracts"] if c["name"] == "The parent imports no torch"]
    return list(contract["source_modules"])


def run(*names: str) -> str:
    """What is wrong, in an interpreter of its own."""
    command = [sys.executable, "-c", CODE, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return done.stderr.strip()


def test_no_module_of_the_parent_imports_torch_by_any_way() -> None:
    assert len(rooms()) >= 6
    assert run(*rooms(), "aggverify.execution", "aggverify.generation", "aggverify.steps") == ""


def test_a_module_that_does_is_named() -> None:
    assert run("aggverify.trainer").endswith(" imports torch")
