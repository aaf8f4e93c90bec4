"""Every kind of change in every format, as a whole command: its exit code, and all that it says."""

from __future__ import annotations

import json
import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from aggverify.model import render
from aggverify.regression.compare import compare
from aggverify.regression.formats import FORMATS
from aggverify.regression.model import Kind
from tests import schemas
from tests.conftest import Cli
from tests.regression.documents import pairs

EXPECTED = Path(__file__).parent / "expected"
EXITS = {Kind.ERROR: 2} | dict.fromkeys(list(Kind)[:4], 1)
"""All others are 0."""
AGAIN = "AGGVERIFY_EXPECT" in os.environ
"""Whether what is said now is to be written instead of compared."""


@pytest.mark.parametrize(("kind", "name"), list(product(Kind, FORMATS)), ids=str)
def test_what_is_said_of_every_kind(kind: Kind, name: str, cli: Cli, tmp_path: Path) -> None:
    for side, document in zip(("base", "head"), pairs()[kind](), strict=True):
        (tmp_path / f"{side}.json").write_text(render(document))
    ran = cli("compare", "base.json", "head.json", "--format", name)
    assert ran.code == EXITS.get(kind, 0), ran
    told = f"exit {ran.code}\n{ran.out}"
    if name == "html":
        told = re.sub(r"(?s)<style>.*</style>", "<style></style>", told)
    if name == "json":
        schemas.validator(schemas.COMPARISON).validate(json.loads(ran.out))
        told = f"exit {ran.code}\n{json.dumps(_without_findings(json.loads(ran.out)), indent=1)}\n"
    path = EXPECTED / f"{kind}.{name}"
    if AGAIN:
        path.write_text(told)
    assert told == path.read_text()


def _without_findings(data: Any) -> Any:
    """What a finding has is the verdict document's to say."""
    for change in data["changes"]:
        change["finding"] = change["finding"] and change["finding"]["id"]
    return data


@pytest.mark.parametrize("kind", Kind)
def test_each_pair_is_of_its_kind_and_of_no_worse(kind: Kind) -> None:
    found = compare(*pairs()[kind]())
    assert found.changes[0].kind is kind
    assert {*(c.kind for c in found.changes)} <= {kind, Kind.UNCHANGED, Kind.KNOWN, Kind.NEW_HAZARD}


def test_a_hazard_fails_where_it_is_to_be_taken_strictly(cli: Cli, tmp_path: Path) -> None:
    for side, document in zip(("base", "head"), pairs()[Kind.NEW_HAZARD](), strict=True):
        (tmp_path / f"{side}.json").write_text(render(document))
    ran = cli("compare", "base.json", "head.json", "--strict")
    assert ran.code == 1 and ran.out.splitlines()[-1].startswith("Merging this makes gradients")


def test_several_documents_are_a_folder(cli: Cli, tmp_path: Path) -> None:
    base, head = pairs()[Kind.KNOWN]()
    for side, document in (("base", base), ("head", head)):
        for n in range(2):
            folder = tmp_path / side / str(n)
            folder.mkdir(parents=True)
            (folder / "verdict.json").write_text(render(document))
            (folder / "a_case.json").write_text("{}")
    ran = cli("compare", "base", "head")
    assert ran.code == 0 and "2 known findings" in ran.out
    ran = cli("compare", "base", "nowhere")
    assert ran.code == 2 and "no such file: nowhere" in ran.err
