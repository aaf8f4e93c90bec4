"""What is run by default has a case of everything: no mark takes the last one away."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from aggverify.checks import CHECKS
from aggverify.cli import commands
from aggverify.conventions import CONVENTIONS
from aggverify.engines import ENGINES
from aggverify.world.faults import FaultKind
from tests import conftest


@pytest.fixture
def items(request: pytest.FixtureRequest) -> list[pytest.Function]:
    """All tests of a run without paths or expressions, as far as they are run."""
    config = request.config
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not everything or config.option.keyword or "not thorough" not in config.option.markexpr:
        pytest.skip("only where the quick suite as a whole is run")
    return [item for item in request.session.items if isinstance(item, pytest.Function)]


def marked(items: Iterable[pytest.Function], what: str) -> set[str]:
    """What the tests' own marks say they are about."""
    marks = [mark for item in items for mark in item.iter_markers("covers")]
    return {mark.kwargs[what] for mark in marks if what in mark.kwargs}


def said(items: Iterable[pytest.Function], fixtures: set[str]) -> set[str]:
    """Every text written in the code of tests that use one of the fixtures."""
    functions = {item.function for item in items if fixtures & set(item.fixturenames)}
    texts: set[str] = set()
    for function in functions:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        texts |= {node.value for node in nodes if isinstance(node.value, str)}
    return texts


def test_of_every_check(items: list[pytest.Function]) -> None:
    assert {check.name for check in CHECKS} - marked(items, "check") == set()


def test_of_every_convention(items: list[pytest.Function]) -> None:
    assert set(CONVENTIONS) - marked(items, "convention") == set()


def test_of_every_engine(items: list[pytest.Function]) -> None:
    assert set(ENGINES) - marked(items, "engine") == set()


def test_of_every_command(items: list[pytest.Function]) -> None:
    assert set(commands.commands) - said(items, {"cli", "shell"}) == set()


def test_of_every_kind_of_fault(items: list[pytest.Function]) -> None:
    assert set(get_args(FaultKind)) - said(items, {"play"}) - marked(items, "fault") == set()


@pytest.mark.parametrize("part, left", [("1/1", "abcde"), ("1/2", "ace"), ("2/2", "bd")])
def test_parts_share_what_is_asked_for(
    part: str, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "PART", part)
    gone: list[str] = []

    def deselected(items: list[str]) -> None:
        gone.extend(items)

    items: list[Any] = list("abcde")
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=deselected))
    conftest.pytest_collection_modifyitems(config, items)
    assert items == list(left)
    assert sorted([*items, *gone]) == list("abcde")
