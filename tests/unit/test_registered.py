"""Every check, engine and mode of the tool's own is in the table of its folder, by one line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aggverify import checks, engines, oracles
from aggverify.checks import CHECKS, Check
from aggverify.engines import ENGINES, EngineSpec
from aggverify.oracles import MODES, PAIRED, Mode
from aggverify.plugins import objects_of


def _objects(package: str, file: str, kind: type) -> list[Any]:
    modules = sorted(Path(file).parent.glob("[!_]*.py"))
    values = (v for m in modules for v in vars(import_module(f"{package}.{m.stem}")).values())
    return [v for v in values if isinstance(v, kind) and not isinstance(v, type)]


def test_no_check_engine_or_mode_is_forgotten() -> None:
    known = {check.name for check in CHECKS}
    assert {c.name for c in _objects("aggverify.checks", checks.__file__, Check)} == known
    specs = _objects("aggverify.engines", engines.__file__, EngineSpec)
    assert {spec.name for spec in specs if ":" not in spec.name} == set(ENGINES.own)
    folder = str(Path(oracles.__file__).parent / "modes" / "__init__.py")
    found = {mode.name for mode in _objects("aggverify.oracles.modes", folder, Mode)}
    assert found == {*MODES, *PAIRED}


def test_codes_of_the_tool_s_own_checks_are_in_the_catalogue() -> None:
    assert not [check.name for check in CHECKS if check.codes], "only a person's check brings them"


def test_a_line_that_names_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"aggverify\.checks\.base:MASK is no Check: "):
        objects_of(lambda: Check, ["aggverify.checks.base:MASK"])
    with pytest.raises(AttributeError, match="NOTHING"):
        objects_of(lambda: Check, ["aggverify.checks.poison:NOTHING"])
