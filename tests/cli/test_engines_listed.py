"""``aggverify engines`` names every engine, README those of most trainers."""

from __future__ import annotations

import pytest

from aggverify.engines import ENGINES
from aggverify.engines.plain_sum import PLAIN_SUM
from tests.conftest import ROOT, Cli


def test_every_engine_is_listed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = cli("engines")
    assert listed.code == 0, listed
    blocks = {block.partition("\n")[0]: block for block in listed.out.split("\n\n")}
    for engine in ENGINES.values():
        here = engine.available() or "available"
        for said in (engine.title, engine.does, engine.trainers, engine.required, here):
            assert said in blocks[engine.name], engine.name
    assert "without --engine: native" in blocks["sum"]
    assert "without --engine: slime" in blocks["megatron-token"]
    monkeypatch.setattr(type(PLAIN_SUM), "available", lambda self: "it needs 8 GPUs")
    assert "cannot run here: it needs 8 GPUs" in cli("engines").out


def test_the_readme_names_engines_that_there_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Which engine am I?")[2].partition("\n## ")[0]
    rows = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")][1:]
    names = [name.strip(" `") for row in rows for name in row.split(",")]
    assert len(rows) == 5 and {*names} - {*ENGINES} == {"module:ENGINE"}
