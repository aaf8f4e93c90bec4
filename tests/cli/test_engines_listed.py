"""``aggverify engines`` and ``conventions`` name every one, README those of most trainers."""

from __future__ import annotations

from datetime import date

import pytest

from aggverify.conventions import CONVENTIONS, convention
from aggverify.conventions.run_against import newer, run_against
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


def test_every_convention_is_listed_with_what_it_was_run_against(cli: Cli) -> None:
    listed = cli("conventions")
    assert listed.code == 0, listed
    blocks = {block.partition("\n")[0].split(" ")[0]: block for block in listed.out.split("\n\n")}
    for how in CONVENTIONS.values():
        for text in (how.title, how.signature, *(one.text for one in run_against(how))):
            assert text in blocks[how.name], how.name
    assert "skyrl 0.4.0 (2026-11-26)" in blocks["skyrl-worker"]
    assert "nothing: it calls your function" in blocks["native"]
    for name in ("areal-reduction", "miles-aggregation", "slime-aggregation"):
        assert "\n    with --group-size G: prompt_mean\n" in blocks[name]
    assert "\n    with --micro-batch-size B: token_mean_legacy\n" in blocks["skyrl-worker"]
    assert "    with --" not in blocks["skyrl-tinker"] + blocks["validation"]


OF_NO_FRAMEWORK = {
    "native": "a signature of aggverify's",
    "policy-loss": "a signature of aggverify's",
    "trainer": "a signature of aggverify's",
    "trainer-engine": "a signature of aggverify's",
    "slime": "the hook is a function of a person's, what calls it is slime-trainer's",
    "validation": "a validator has its own adapter, which names what it ran against",
    "log-reducer": "a function that merges logs has its own adapter",
    "dealer": "a function that assigns groups has its own adapter",
}
"""Conventions that name no framework's code, and why."""


def test_every_convention_of_a_framework_was_run_against_its_code() -> None:
    assert {name for name, how in CONVENTIONS.items() if not run_against(how)} == {*OF_NO_FRAMEWORK}
    for how in CONVENTIONS.values():
        for one in run_against(how):
            assert one.name and one.version, how.name
            assert date.fromisoformat(one.date) >= date(2026, 11, 26), how.name


def test_a_version_that_is_newer_than_that_is_a_note() -> None:
    how = convention("skyrl-worker")
    [note] = newer(how, {"skyrl": "0.10.0", "torch": "99"})
    assert note.startswith("skyrl 0.10.0 is newer than what skyrl-worker has been run against")
    assert newer(how, {"skyrl": "0.4.0"}) == newer(how, {"skyrl": "0.3.1"}) == newer(how, {}) == ()
