"""Settings as data: ``[tool.aggverify]`` of a pyproject.toml, and a file's own ``AGGVERIFY``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aggverify.conventions import FEATURES, convention
from aggverify.engines import engine
from aggverify.errors import InputError, shown, unknown
from aggverify.execution.budget import PROFILES, STEPS
from aggverify.execution.options import OPTIONS, Option, Where, texts
from aggverify.execution.term_readings import TERM_READINGS
from aggverify.files import contents, is_path, resolved
from aggverify.oracles import OracleError, Policy
from aggverify.run.planning import project
from aggverify.run.planning.naming import canonical
from aggverify.run.planning.request import Request

SECTION = "tool.aggverify"
MAX_BYTES = 1 << 20
"""Largest file that is read."""
CLAIMS: Mapping[str, Option] = {o.key: o for o in OPTIONS if o.where is Where.ANYWHERE}
"""What a file may declare in ``AGGVERIFY``."""
PROBE_POINTS = "probe-points"
"""A table of the section that holds no options: ``aggverify audit`` reads it."""
KEYS: Mapping[str, Option] = {o.key: o for o in OPTIONS if o.where is not Where.NOWHERE}
"""What a project may set."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Valid values by key, and where they come from."""

    values: Mapping[str, Any] = field(default_factory=dict)
    source: Path | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self.values.get(key, default)


def validated(where: str, values: object, keys: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values if every key and value can be used; raises InputError naming ``where``."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a table of plain values, got {shown(values)}")
    for key, value in values.items():
        if key not in keys:
            raise _unknown(where, "key", key, keys)
        if (why := keys[key].wrong(value)) is not None:
            raise InputError(f"{where}: {key} {why}")
    _check_names(where, values)
    return dict(values)


def _check_inside(where: str, path: Path, folder: Path) -> None:
    """Raise unless a path in settings stays in their folder: the settings may be anybody's."""
    leads = resolved(path)
    if not leads.is_relative_to(folder.resolve()):
        raise InputError(f"{where} leads out of {folder}, to {leads}: say it on the command line")


def _check_names(where: str, values: Mapping[str, Any]) -> None:
    """Names out of closed sets, checked here so that the error can name where they stand."""
    try:
        # With an adapter it may be the adapter's own name: looked up where that is known.
        for name in texts(() if "adapter" in values else values.get("mode", ())):
            canonical(name, values.get("micro_batch_size"))
        Policy.from_text({q: str(r) for q, r in values.get("policy", {}).items()})
        if "engine" in values:
            engine(values["engine"])
        if is_path(called := values.get("convention", "auto")):
            raise InputError(f"convention: name a file with --adapter, or adapter = {called!r}")
        if called != "auto":
            convention(called)
        numbers = ("world", "group_size", "micro_batch_size", "max_time", "max_examples")
        places = ("backend", "device")
        Request(
            "",
            accept=frozenset(texts(values.get("accept", ()))),
            **{KEYS[key].field: values[key] for key in (*numbers, *places) if key in values},
        )
    except (OracleError, InputError) as error:
        raise InputError(f"{where}: {error}") from None
    for key in ("claim", "without"):
        for name in texts(values.get(key, ())):
            if name not in FEATURES:
                raise _unknown(where, "feature", name, FEATURES)
    for key, names in (("step", STEPS), ("profile", PROFILES)):
        if key in values and values[key] not in names:
            raise _unknown(where, key, values[key], names)
    for name, reading in values.get("terms", {}).items():
        if reading not in TERM_READINGS:
            raise _unknown(where, f"reading of {name}", reading, TERM_READINGS)


def _unknown(where: str, what: str, given: object, accepted: Iterable[str]) -> InputError:
    return InputError(f"{where}: {unknown(what, given, accepted)}")


def _check_own_engine(where: str, name: str, folder: Path) -> None:
    """Raise unless the module of an engine, which this process imports, lies in the folder."""
    module = name.partition(":")[0]
    lies = project.places(module, [*sys.path, str(Path.cwd())])
    if not all(place.is_relative_to(folder.resolve()) for place in lies):
        raise InputError(
            f"{where} {name!r:.200} does not lie in {folder}: say it on the command line"
        )


_LEADS = frozenset({"engine", *(key for key, option in KEYS.items() if option.is_path)})
"""Keys that name code to run in this process, or a path."""


def find(start: Path, *, trusted: bool = True, named_options: Collection[str] = ()) -> Settings:
    """Return the settings of the project's nearest pyproject.toml that has the section.

    It is at or above ``start``; what lies above the project is somebody else's. ``trusted``:
    whether this process may import a module of the project that they name as an engine.
    ``named_options``: keys that the person gives, for which the project's paths are not looked at.
    """
    for folder in project.folders(start):
        path = folder / "pyproject.toml"
        if path.exists():  # what is no file is refused, not passed over
            found = read(path, required=False, trusted=trusted, named_options=named_options)
            if found.source is not None:
                return found
    return Settings()


def read(
    path: Path, *, required: bool = True, trusted: bool = True, named_options: Collection[str] = ()
) -> Settings:
    """Return the settings of one TOML file; raises InputError for what cannot be read or used."""
    try:
        text = contents(path, MAX_BYTES)
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
    where, folder = f"[{SECTION}] in {path}", path.parent
    if isinstance(section, Mapping):
        section = {
            k: v
            for k, v in section.items()
            if k != PROBE_POINTS and not (k in named_options and k in _LEADS)
        }
        named = section.get("engine")
        if isinstance(named, str) and ":" in named:
            if not trusted:
                raise InputError(
                    f"{where}: the engine {named!r:.200} would be run in this process, which is "
                    "outside of --sandbox"
                )
            _check_own_engine(f"{where}: engine", named, folder)
    values = validated(where, section, KEYS)
    for key in values:
        if KEYS[key].is_path:  # relative to the file that contains it, wherever the command is run
            values[key] = str(folder / values[key])
            _check_inside(f"{where}: {key}", Path(values[key]), folder)
    return Settings(values, path)
