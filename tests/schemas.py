"""The JSON schemas that ship, and whether what the tool wrote fits them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
from referencing import Registry, Resource

import aggverify

FOLDER = Path(aggverify.__file__).parent / "schema"
VERDICT, CASE, FAULT = "verdict.json", "case.json", "fault.json"
BASELINE, COMPARISON = "baseline.json", "comparison.json"


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """One of them, with those that it refers to."""
    known = {each: json.loads((FOLDER / each).read_text()) for each in {name, VERDICT, CASE, FAULT}}
    pairs = [(each, Resource.from_contents(schema)) for each, schema in known.items()]
    return jsonschema.Draft202012Validator(known[name], registry=Registry().with_resources(pairs))


def check_folder(folder: Path) -> None:
    """Every verdict document and stored case below; raises jsonschema.ValidationError."""
    for pattern, name in ((VERDICT, VERDICT), ("cases/*.json", CASE)):
        for path in folder.rglob(pattern):
            validator(name).validate(json.loads(path.read_text()))
