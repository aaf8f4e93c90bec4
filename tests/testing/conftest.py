"""A throw-away project, and the pytest that runs there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES

pytest_plugins = ["pytester"]
Suite = Callable[..., pytest.Pytester]

WITHIN = ("-p", "no:hypothesispytest", "-p", "no:xdist")
"""Hypothesis' plugin wants its own process: a command within this one may have moved its home."""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A throw-away project with a right and a wrong reducer and the test file of ``lines``, on a
    CI machine: there pytest's short summary is not cut to the terminal's width."""
    monkeypatch.setenv("CI", "true")

    def make(*lines: str) -> pytest.Pytester:
        for name, file in (
            ("right", EXAMPLES / "native" / "sum" / "token_mean.py"),
            ("wrong", EXAMPLES / "broken" / "micro_batch_token_mean.py"),
        ):
            Path(pytester.path, f"{name}.py").write_text(file.read_text())
        pytester.makefile(".ini", pytest="[pytest]")
        pytester.makepyfile("\n".join(("import aggverify, pytest", *lines)))
        return pytester

    return make
