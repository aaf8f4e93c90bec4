"""What a wheel holds: all that a person runs, nothing that only tests use."""

from __future__ import annotations

import re
import tarfile
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import grimp
import pytest

import aggverify
from aggverify.conventions.shipped import shipped
from aggverify.oracles import modes
from aggverify.regression.formats import FORMATS as COMPARED
from aggverify.report.formats import FORMATS
from tests.conftest import ROOT
from tests.packaging.conftest import build
from tests.quality.test_names import RENAMED


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        return {name for name in packed.namelist() if ".dist-info/" not in name}


def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    there = {
        str(path.relative_to(ROOT))
        for folder in (ROOT / "aggverify", ROOT / "aggverify" / "oracles")
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "aggverify/oracles/modes/__init__.py" in there
    assert names(wheel) == there


def test_nothing_is_shipped_that_only_tests_use() -> None:
    graph = grimp.build_graph("aggverify")
    texts = [path.read_text() for path in (ROOT / "aggverify").rglob("*.py")]
    texts.append((ROOT / "pyproject.toml").read_text())
    named = {name for text in texts for name in re.findall(r"aggverify(?:\.\w+)+(?=:\w)", text)}
    named |= {known.module for known in FORMATS.own.values()} | {*COMPARED.values()}
    # What a person imports, and what pytest does.
    named |= {*aggverify._FROM.values(), "aggverify.strategies"}
    named |= {e.value for e in entry_points(group="pytest11") if e.name == "aggverify"}
    # Adapters are read as files.
    named |= {f"{shipped.__module__}.{Path(how.path).stem}" for how in shipped().values()}
    packages = {m for m in graph.modules if graph.find_children(m)}
    # Modes are imported by name.
    named |= {f"{modes.__name__}.{name}" for name in modes._ORDER}
    # Names of before, which warn.
    named |= {f"aggverify.{name}" for name in RENAMED} | {"aggverify.report.model"}
    # What a person runs by `python -m` is a use of its own.
    run = {name for name in graph.modules if _is_run(name)}
    unused = {
        module
        for module in graph.modules - packages - named - run
        if not graph.find_modules_that_directly_import(module)
    }
    # Templates run it by its name in the code given to a new interpreter.
    assert unused - {"aggverify.world.fork_server"} == set()
    assert "aggverify.trainer.training" in named


def _is_run(module: str) -> bool:
    path = ROOT / f"{module.replace('.', '/')}.py"
    return path.is_file() and (
        path.name == "__main__.py" or '__name__ == "__main__"' in path.read_text()
    )


@pytest.mark.thorough
def test_a_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as packed:
        packed.extractall(tmp_path, filter="data")
    [source] = tmp_path.glob("aggverify-*")
    assert names(build("wheel", source, tmp_path / "wheel")) == names(wheel)
