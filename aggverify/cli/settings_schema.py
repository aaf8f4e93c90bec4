"""The JSON schemas of ``[tool.aggverify]`` and of a file that has it, from the table of options.

``python -m aggverify.cli.settings_schema`` writes both into ``aggverify/schema``. Editors take a
schema for the whole file, and some of them refuse one that refers to another by a relative path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from aggverify.conventions import ALIASES, CONVENTIONS, FEATURES
from aggverify.engines import ENGINES
from aggverify.execution.budget import LARGEST, PROFILES, STEPS
from aggverify.execution.claim import NONLINEAR
from aggverify.execution.option_types import LONGEST, MOST_TEXTS, OptionType
from aggverify.execution.options import Option
from aggverify.execution.term_readings import TERM_READINGS
from aggverify.oracles import FAMILIES, LEGACY, MODES, NAMES, OBJECTIVES, PAIRED
from aggverify.oracles.objectives import NICKNAMES
from aggverify.oracles.policy import QUESTIONS, READINGS
from aggverify.report.formats import FORMATS
from aggverify.run.planning.settings import KEYS, PROBE_POINTS
from aggverify.run.planning.waiver import FORM
from aggverify.world import AUTO, BACKENDS, KINDS

_KINDS = "|".join((*FAMILIES, *OBJECTIVES, *NICKNAMES))
_MEMBER = rf"^({_KINDS})(\(-?[0-9]{{1,9}}(\.[0-9]{{1,9}}|/[0-9]{{1,9}})?\))?$"
_OBJECT = "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
"""A person's own engine; a schema cannot check whether it is one."""
_SIZED = rf"^{LEGACY.name}\(([1-9][0-9]{{0,2}}|10[01][0-9]|102[0-4])\)$"
"""With the samples of each micro-batch, of which there are 1,024 at most."""
_TAKEN = [n for n, meanings in NAMES.items() if len(meanings) == 1 and meanings[0].mode in MODES]
_ENUM = list(dict.fromkeys([*MODES, *PAIRED, NONLINEAR, *_TAKEN]))
_OF_ROWS = [n for n, meanings in NAMES.items() if [m.mode for m in meanings] == [LEGACY.name]]
"""Names of a mean over each micro-batch, a mode where ``micro_batch_size`` gives its samples."""
_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST}
_NAMES: dict[str, dict[str, Any]] = {
    "": _TEXT,
    # Editors and shells offer the names; which are taken depends on other settings.
    "mode": {"anyOf": [{"enum": _ENUM}, _TEXT]},
    "convention": {"enum": ["auto", *CONVENTIONS.own, *ALIASES]},
    "engine": {"anyOf": [{"enum": list(ENGINES.own)}, {"type": "string", "pattern": _OBJECT}]},
    "claim": {"enum": list(FEATURES)},
    "accept": {"type": "string", "pattern": f"^{FORM}$"},
    "profile": {"enum": list(PROFILES)},
    "backend": {"enum": [AUTO, *BACKENDS]},
    "device": {"enum": list(KINDS)},
    "step": {"enum": list(STEPS)},
    "report": {"enum": list(FORMATS.own)},
}
_SIMPLE = {OptionType.NUMBER: "number", OptionType.INTEGER: "integer", OptionType.FLAG: "boolean"}


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """Return the section's schema as plain data.

    Its ``$id`` is a name and no address, as the file lies wherever it is installed.
    """
    return {
        "$schema": _DIALECT,
        "$id": "urn:aggverify:settings",
        "title": "[tool.aggverify] in pyproject.toml",
        "description": (
            "What a project declares once instead of on every command line; options and a file's "
            "own AGGVERIFY go first."
        ),
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{key: _property(option) for key, option in KEYS.items()},
            PROBE_POINTS: {
                "description": "Where aggverify audit finds per-token losses, each by its name.",
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
            },
        },
        # An adapter may name its modes otherwise.
        "if": {"not": {"required": ["adapter"]}},
        "then": {
            "if": {"required": ["micro_batch_size"]},
            "then": _modes([*_ENUM, *_OF_ROWS]),
            "else": _modes(_ENUM),
        },
    }


def _modes(names: Sequence[str]) -> dict[str, Any]:
    patterns = ({"type": "string", "pattern": pattern} for pattern in (_MEMBER, _SIZED))
    known = {"anyOf": [{"enum": list(names)}, *patterns]}
    return {"properties": {"mode": _one_or_several(known)}}


def whole_file() -> dict[str, Any]:
    """Return the schema of ``pyproject.toml``, which leaves all but the section to other tools."""
    section = {key: value for key, value in schema().items() if key != "$schema"}
    tool = {"type": "object", "properties": {"aggverify": section}}
    return {
        "$schema": _DIALECT,
        "$id": "urn:aggverify:pyproject",
        "title": "A file with [tool.aggverify]",
        "type": "object",
        "properties": {"tool": tool},
    }


def _property(option: Option) -> dict[str, Any]:
    relative = " Relative to this file." if option.is_path else ""
    return {"description": option.help + relative, **_values(option)}


def _values(option: Option) -> dict[str, Any]:
    if option.kind is OptionType.READINGS:
        terms = {"type": "object", "additionalProperties": {"enum": list(TERM_READINGS)}}
        return terms if option.key == "terms" else _readings()
    names = _NAMES[option.names]
    if option.kind is OptionType.TEXT:
        return names
    if option.kind is OptionType.TEXTS:
        return _one_or_several(names)
    whole = LARGEST if option.kind is OptionType.INTEGER else None
    limits = {
        "minimum": option.least if option.least is not None else whole and -whole,
        "maximum": option.most if option.most is not None else whole,
        "exclusiveMinimum": option.above,
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    return {"type": _SIMPLE[option.kind], **known}


def _one_or_several(names: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [names, {"type": "array", "items": names, "maxItems": MOST_TEXTS}]}


def _readings() -> dict[str, Any]:
    number = {"type": "string", "pattern": "^0*[1-9][0-9]*$"}
    kinds: dict[str, dict[str, Any]] = {q: {"enum": list(r)} for q, r in READINGS.items()}
    kinds["group_size"] = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": LARGEST}, number]}
    needs_size = {"prompt_count": {"const": "rollouts_over_group_size"}}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {q: {"description": words, **kinds[q]} for q, words in QUESTIONS.items()},
        "if": {"properties": needs_size, "required": ["prompt_count"]},
        "then": {"required": ["group_size"]},
    }


def rendered() -> Iterator[tuple[str, str]]:
    """Names and texts, as they are shipped."""
    for name, found in (("settings.json", schema()), ("pyproject.json", whole_file())):
        yield name, json.dumps(found, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, text in rendered():
        Path(str(files("aggverify") / "schema" / name)).write_text(text, encoding="utf-8")
