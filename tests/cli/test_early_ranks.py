"""What ranks are forked from is started once, and imports torch while settings are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import cast

import pytest

from aggverify.cli.joined import CommandRun
from aggverify.execution.limits import HANDLER
from aggverify.run.planning import settings
from aggverify.world import Cluster, LocalLauncher, PoolError
from aggverify.world.sandbox import Sandbox
from tests.conftest import EXAMPLES, Cli

pytestmark = pytest.mark.usefixtures("own_launchers")
STARTED, READ, CLOSED = "ranks started", "settings read", "ranks closed"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    class Launcher(LocalLauncher):
        def __init__(self, inside: Sandbox | None = None, preload: str = "") -> None:
            seen.append(STARTED)
            assert HANDLER.startswith(f"{preload}:")
            super().__init__(inside, preload)

        def close(self) -> None:
            seen.append(CLOSED)
            super().close()

    found = settings.find

    def find(*given: object, **named: object) -> Mapping[str, object]:
        seen.append(READ)
        return found(*given, **named)

    monkeypatch.setattr("aggverify.world.LocalLauncher", Launcher)
    monkeypatch.setattr("aggverify.world.pool.LocalLauncher", Launcher)
    monkeypatch.setattr(settings, "find", find)
    return seen


def test_once_before_settings_are_read(cli: Cli, log: list[str]) -> None:
    assert cli("check", "missing.py").code == 2
    assert log == [STARTED, READ, CLOSED]


def test_not_for_a_name_that_is_none(cli: Cli, log: list[str]) -> None:
    assert cli("check", "missing.py", "--profile", "fats").code == 2
    assert log == []


@pytest.mark.parametrize(("more", "seen"), [((), [STARTED, CLOSED]), (("--sandbox",), [])])
def test_closed_where_settings_cannot_be_read_and_not_outside_of_a_sandbox(
    cli: Cli, log: list[str], more: tuple[str, ...], seen: list[str]
) -> None:
    assert cli("check", "missing.py", "--config", "missing.toml", *more).code == 2
    assert log == seen


def test_not_where_ranks_are_launched_already(log: list[str]) -> None:
    run = CommandRun(0.0, cluster=cast("Cluster", object()))
    with import_module("aggverify.cli.check")._launcher(run, {}) as launcher:
        assert launcher is None
    assert log == []


def test_why_there_are_none_is_in_the_document(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(inside: Sandbox | None = None, preload: str = "") -> LocalLauncher:
        raise PoolError("no room for them")

    monkeypatch.setattr("aggverify.world.LocalLauncher", refused)
    monkeypatch.setattr("aggverify.world.pool.LocalLauncher", refused)
    ran = cli("check", EXAMPLES / "native" / "sum" / "token_mean.py", "--report", "json=-")
    assert ran.code == 2
    assert "no room for them" in json.loads(ran.out)["error"]
