"""Modules and classes have the field's names: each class is defined once, no name is retired."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

import aggverify
from tests.conftest import ROOT

PACKAGE = Path(aggverify.__file__).parent
RENAMED: dict[str, str] = tomllib.loads((ROOT / "glossary.toml").read_text(encoding="utf-8"))[
    "renamed_modules"
]


def modules(package: Path) -> dict[str, Path]:
    """Every module below, by its dotted name there."""
    return {
        ".".join(path.relative_to(package).with_suffix("").parts): path
        for path in sorted(package.rglob("*.py"))
    }


def defined_twice(package: Path) -> dict[str, set[str]]:
    """Names of classes, nested ones included, that more than one module defines."""
    found = defaultdict(set)
    for name, path in modules(package).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(name)
    return {name: places for name, places in found.items() if len(places) > 1}


def retired(package: Path) -> set[str]:
    """Modules and packages that are there by a name of before, unless all they do is warn."""
    names = {
        name.removesuffix(".__init__")
        for name, path in modules(package).items()
        if "__getattr__ = renamed_in(" not in path.read_text(encoding="utf-8")
    }
    return names & set(RENAMED)


def test_every_class_name_is_defined_once() -> None:
    assert defined_twice(PACKAGE) == {}


def test_no_module_has_a_retired_name() -> None:
    assert retired(PACKAGE) == set()


def test_every_retired_module_names_the_one_in_its_place() -> None:
    there = {name.removesuffix(".__init__") for name in modules(PACKAGE)}
    assert {old: new for old, new in RENAMED.items() if new.partition(":")[0] not in there} == {}


def test_a_second_class_and_a_retired_module_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "slate.py").write_text("class Part: ...\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("def f():\n    class Part: ...\n", encoding="utf-8")
    assert defined_twice(tmp_path) == {"Part": {"other", "world.slate"}}
    assert retired(tmp_path) == {"world.slate"}
