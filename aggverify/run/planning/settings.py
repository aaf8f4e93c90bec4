"""Settings as data: ``[tool.aggverify]`` of a pyproject.toml, and a file's own ``AGGVERIFY``.

One table of keys serves both; ``aggverify/schema/settings.json`` says the same to editors.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aggverify.conventions import FEATURES, convention
from aggverify.engines import engine
from aggverify.errors import InputError, unknown
from aggverify.execution.budget import PROFILES
from aggverify.execution.claim import NONLINEAR
from aggverify.oracles import OracleError, Policy, mode
from aggverify.run.planning.request import Request

SECTION = "tool.aggverify"
MAX_BYTES = 1 << 20
"""Of a file at most: what is cut off there is no TOML, or has no section."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values by key, and where they come from."""

    values: Mapping[str, Any] = field(default_factory=dict)
    source: Path | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.values.get(key, default)


def _is_number(value: object) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(float(value))  # type: ignore[arg-type]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _are_texts(value: object) -> bool:
    return _is_text(value) or (isinstance(value, list | tuple) and all(map(_is_text, value)))


def _are_readings(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(_is_text(k) and (_is_text(v) or _is_integer(v)) for k, v in value.items())


_TEXT = (_is_text, "a text")
_TEXTS = (_are_texts, "a text or a list of texts")
_NUMBER = (_is_number, "a finite number")
_INTEGER = (_is_integer, "an integer")

CLAIMS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "mode": _TEXTS,
    "convention": _TEXT,
    "engine": _TEXT,
    "divisor": _NUMBER,
    "group_size": _INTEGER,
    "claim": _TEXTS,
    "policy": (_are_readings, "a table of question = reading"),
}
"""What a file may say of itself in ``AGGVERIFY``, with the check of its type."""

KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **CLAIMS,
    "oracle": _TEXT,
    "world": _INTEGER,
    "profile": _TEXT,
    "max_examples": _INTEGER,
    "max_time": _NUMBER,
    "seed": _INTEGER,
    "report": _TEXTS,
    "report_dir": _TEXT,
}
"""What a project may say: everything ``aggverify check`` has an option for."""


def texts(value: Any) -> tuple[str, ...]:
    """A text or a list of texts as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def validated(
    where: str, values: object, keys: Mapping[str, tuple[Callable[[object], bool], str]]
) -> dict[str, Any]:
    """The values if every key and value can be used; raises InputError naming ``where``."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a table of plain values, got {values!r:.200}")
    for key, value in values.items():
        if key not in keys:
            raise _known(where, "key", key, keys)
        fits, wanted = keys[key]
        if not fits(value):
            raise InputError(f"{where}: {key} must be {wanted}, got {value!r:.200}")
    _check_names(where, values)
    return dict(values)


def _check_names(where: str, values: Mapping[str, Any]) -> None:
    """Names out of closed sets, checked here so that the error can say where they stand."""
    try:
        for name in texts(values.get("mode", ())):
            if name != NONLINEAR:
                mode(name)
        Policy.from_text({q: str(r) for q, r in values.get("policy", {}).items()})
        if "engine" in values:
            engine(values["engine"])
        if values.get("convention", "auto") != "auto":
            convention(values["convention"])
        numbers = {"world": "max_world", "group_size": "group_size", "max_time": "max_time"}
        numbers["max_examples"] = "max_examples"
        Request("", **{n: values[key] for key, n in numbers.items() if key in values})
    except (OracleError, InputError) as error:
        raise InputError(f"{where}: {error}") from None
    for name in texts(values.get("claim", ())):
        if name not in FEATURES:
            raise _known(where, "claim", name, FEATURES)
    if "profile" in values and values["profile"] not in PROFILES:
        raise _known(where, "profile", values["profile"], PROFILES)


def _known(where: str, what: str, given: object, accepted: Iterable[str]) -> InputError:
    return InputError(f"{where}: {unknown(what, given, accepted)}")


def find(start: Path) -> Settings:
    """The settings of the nearest pyproject.toml at or above ``start`` that has the section."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            found = read(path, required=False)
            if found.source is not None:
                return found
    return Settings()


def read(path: Path, *, required: bool = True) -> Settings:
    """The settings of one TOML file; raises InputError for what cannot be read or used."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise InputError(f"{path} is larger than settings can be ({MAX_BYTES} bytes)")
        data = tomllib.loads(text.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    tool = data.get("tool", {})
    section = tool.get("aggverify") if isinstance(tool, Mapping) else None
    if section is None:
        if required:
            raise InputError(f"{path} has no [{SECTION}] section")
        return Settings()
    values = validated(f"[{SECTION}] in {path}", section, KEYS)
    for key in ("oracle", "report_dir"):
        if key in values:  # relative to the file that says so, wherever the command is run
            values[key] = str(path.parent / values[key])
    return Settings(values, path)
