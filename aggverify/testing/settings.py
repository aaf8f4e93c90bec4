"""What a suite sets for all its reducers: pytest's options, then [tool.aggverify]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aggverify.errors import InputError
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import BY_KEY, default, texts
from aggverify.run.planning import settings

PYTEST_OPTIONS = ("profile", "seed", "max_time")
"""Options of pytest that hold where a test gives none."""


def usual(config: pytest.Config) -> dict[str, Any]:
    """Options by name; a test's own go first."""
    found = {key: value for key, value in _project(config).items() if BY_KEY[key].field}
    for key in PYTEST_OPTIONS:
        text = config.getoption(f"--aggverify-{key.replace('_', '-')}")
        if text is not None:
            found[key] = _number(key, text)
    return found


def _number(key: str, text: str) -> str | int | float:
    kind = BY_KEY[key].kind
    if kind is OptionType.TEXT:
        return text
    try:
        return int(text) if kind is OptionType.INTEGER else float(text)
    except ValueError:
        flag = key.replace("_", "-")
        raise InputError(f"--aggverify-{flag} must be {kind.value}, got {text!r:.100}") from None


def formats(config: pytest.Config) -> tuple[str, ...]:
    """Return the formats of reports to be written."""
    wanted_formats = config.getoption("--aggverify-report")
    return (
        tuple(wanted_formats.split(","))
        if wanted_formats
        else texts(_project(config).get("report", ()))
    )


def report_dir(config: pytest.Config) -> Path:
    """Where cases and reports go: next to the rootdir's files."""
    return config.rootpath / Path(_project(config).get("report_dir", default("report_dir")))


def _project(config: pytest.Config) -> dict[str, Any]:
    return dict(settings.find(config.rootpath).values)
