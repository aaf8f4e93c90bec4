"""Wrong names among options are refused before anything else is imported.

The names are those of the schema that ships (``schema/settings.json``), which is made from the same
table as the options, so that neither torch nor numpy is imported for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from aggverify import plugins
from aggverify.errors import InputError, unknown
from aggverify.execution.options import BY_KEY, COLORS

_BROUGHT = {"engine": "engines", "convention": "conventions", "report": "reports"}
"""By key, the entry-point group by which packages bring more names."""


def refuse(targets: tuple[str, ...], given: Mapping[str, Any]) -> None:
    """Raise InputError for a name that is none, with the nearest one; ``given``: options by key.

    A mode that the schema does not know is looked up later, where its error can be more precise.
    """
    known = properties()
    for key in ("profile", "engine", "convention", "claim", "without", "report", "step"):
        names, patterns = accepted(known[key])
        for name in _texts(key, given.get(key)):
            fits = any(re.search(pattern, name) for pattern in patterns)
            if name in names or fits or ".py" in name or "/" in name:
                continue
            if key not in _BROUGHT or not plugins.declared(_BROUGHT[key]):
                raise unknown(_called(key), name, names)
    for key in ("backend", "device"):
        if (value := given.get(key)) is not None and value not in known[key]["enum"]:
            raise unknown(key, value, known[key]["enum"])
    if (color := given.get("color", COLORS[0])) not in COLORS:
        raise unknown("color", color, COLORS)
    _refuse_readings(known["policy"]["properties"], given.get("policy", {}))
    _refuse_numbers(given)
    if "constant" in _texts("mode", given.get("mode")) and not _has_divisor(targets, given):
        raise InputError("--mode constant needs --divisor L (the number it divides by)")


def properties() -> dict[str, Any]:
    """Return the schema of each setting, as it ships."""
    text = (files("aggverify") / "schema" / "settings.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)["properties"]
    return found


def _called(key: str) -> str:
    """Return what an error calls one of its values."""
    return {"claim": "feature", "without": "feature", "report": "report format"}.get(key, key)


def accepted(schema: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names and patterns that a schema accepts, those of its alternatives included."""
    names, patterns = list(schema.get("enum", ())), []
    if "pattern" in schema:
        patterns.append(schema["pattern"])
    for other in schema.get("anyOf", ()):
        more = accepted(other)
        names, patterns = [*names, *more[0]], [*patterns, *more[1]]
    return names, patterns


def _texts(key: str, value: Any) -> Iterator[str]:
    several = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    if key != "report":
        yield from several
        return
    for text in several:  # json,html=-
        names = (part.partition("=")[0].strip() for part in text.split(","))
        yield from filter(None, names)


def _refuse_readings(known: Mapping[str, Any], readings: Mapping[str, str]) -> None:
    for question, reading in readings.items():
        if question not in known:
            raise unknown("policy question", question, known)
        names = known[question].get("enum")
        if names is not None and reading not in names:
            raise unknown(f"reading of {question}", reading, names)


def _refuse_numbers(given: Mapping[str, Any]) -> None:
    for key in ("world", "max_examples", "max_time", "group_size", "micro_batch_size", "seed"):
        value = given.get(key)
        if value is not None and (why := BY_KEY[key].wrong(value)) is not None:
            raise InputError(f"{BY_KEY[key].flag} {why}")


def _has_divisor(targets: tuple[str, ...], given: Mapping[str, Any]) -> bool:
    """Whether an option gives it, or a file may: those are read later, with all their rules."""
    if "divisor" in given:
        return True
    here = Path.cwd()
    places = [Path(target.partition(":")[0]) for target in targets]
    places += [folder / "pyproject.toml" for folder in (here, *here.parents)]
    places += [Path(given["config"])] if "config" in given else []
    return any(map(_may_declare_it, places))


def _may_declare_it(place: Path) -> bool:
    if place.suffix not in (".py", ".toml"):
        return True  # a module's file is not known yet
    try:
        return "divisor" in place.read_text("utf-8")
    except (OSError, ValueError):
        return False
