"""``aggverify engines`` names every engine, the README every usual one, and who trains with it."""

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


def test_the_readme_lists_them_with_their_trainers() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for engine in ENGINES.values():
        told = f"| `{engine.name}` | {engine.does} | {engine.trainers} |\n" in readme
        assert told == (engine.deviates is None)  # those are in docs/reference/engines.md
