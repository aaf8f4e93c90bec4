"""Findings of another version, run again on this one: what ``check --replay-from`` stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aggverify.codes.identity import Identity
from aggverify.codes.state import Again
from aggverify.execution.claim import Claim
from aggverify.generation.catalogue import plain_losses
from aggverify.run.again import KnownFinding, again
from aggverify.run.outcome.store import StoredCase, about
from aggverify.run.planning.request import Request
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests.choosing import LATER
from tests.conftest import Cli

REDUCER = """
import torch

AGGVERIFY = {{"mode": "token_mean", "engine": "sum"}}

def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    {does}
    return kept.sum() / max({count}, 1)
"""
RIGHT = REDUCER.format(does="", count="batch.num_tokens")
WRONG = REDUCER.format(does="", count="sum(int(m.sum()) for m in batch.local_masks)")
REFUSING = REDUCER.format(
    does="if batch.num_microbatches > 1: raise ValueError('one micro-batch only')",
    count="batch.num_tokens",
)
CHECK, CODE = "independent_of_micro_batches", "AGV202"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known(function: str = "reduce") -> KnownFinding:
    """Two micro-batches, on which a count of one's own is wrong; of nobody's file that is there."""
    step = parse_step("1/1 1/1")
    case = Case(step, Layout(parse_micro_batches("0 1")), plain_losses(step))
    claim = Claim("elsewhere/r.py", function, "native", "sum", "token_mean")
    stored = StoredCase(case, claim, CHECK, CODE, True, (f"r.py:{function}",))
    mine = about(Claim("r.py", function, "native", "sum", "token_mean"))
    return KnownFinding(Identity(mine, CODE, (), None), stored)


@pytest.mark.parametrize(
    ("text", "outcome", "code"), [(WRONG, Again.FAILS, CODE), (RIGHT, Again.PASSES, None)]
)
def test_a_case_of_another_version_is_judged_on_this_one(
    text: str, outcome: Again, code: str | None, project: Path, shared_pool: Pool
) -> None:
    (project / "r.py").write_text(text)
    others = KnownFinding(
        known().identity, StoredCase(**_fields(known().stored) | {"whose": ("x.py:f",)})
    )
    nobody = KnownFinding(known().identity, StoredCase(**_fields(known().stored) | {"whose": ()}))
    [found] = again([known(), others, nobody, known()], Request("r.py"), pool=shared_pool)
    assert (found.outcome, found.code) == (outcome, code), "once, and of this reducer only"


def _fields(stored: StoredCase) -> dict[str, Any]:
    return {name: getattr(stored, name) for name in stored.__slots__}


@pytest.mark.thorough
def test_a_refusal_is_no_pass_and_what_is_not_there_is_not_run(
    project: Path, shared_pool: Pool
) -> None:
    (project / "r.py").write_text(REFUSING)
    both = [known(), known("gone")]
    found = again(both, Request("r.py"), pool=shared_pool)
    names = {one.stored.id: one.stored.claim.function for one in both}
    by_name = {names[replay.id]: replay for replay in found}
    assert by_name["reduce"].outcome is Again.REFUSED
    assert "one micro-batch only" in (by_name["reduce"].words or "")
    assert by_name["gone"].outcome is Again.NOT_RUN and "gone" in (by_name["gone"].words or "")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("head", "code", "headline"),
    [
        (WRONG, 1, "Merging this makes some gradients 2 times too large in token_mean"),
        LATER(REFUSING, 1, "Merging this verifies less: it refuses several micro-batches"),
        LATER(RIGHT + "\n# but for a comment\n", 0, "Nothing changes in token_mean"),
    ],
    ids=["wrong", "refusing", "the same"],
)
@pytest.mark.exhaustive
def test_from_two_versions_to_the_report(
    head: str, code: int, headline: str, cli: Cli, project: Path
) -> None:
    def check(side: str, text: str, *more: str) -> dict[str, Any]:
        (project / "r.py").write_text(text)
        cli("check", "r.py", "--profile", "quick", "--max-examples", "5", "--max-time", "900",
            "--report", "json", "--report-dir", side, *more)  # fmt: skip
        return json.loads((project / side / "verdict.json").read_text())

    check("base", RIGHT)
    made = check("head", head, "--replay-from", "base/verdict.json")
    assert made["replays"] == [], "the base has no finding"
    again = check("base", RIGHT, "--replay-from", "head/verdict.json")
    ids = [finding["id"] for finding in made["verdicts"][0]["findings"]]
    assert sorted(ids) == sorted(replay["id"] for replay in again["replays"])
    ran = cli("compare", "base", "head")
    assert ran.code == code, ran
    assert ran.out.splitlines()[-1].startswith(headline)
    if head is WRONG:
        fixed = cli("compare", "head", "base")
        assert fixed.code == 0 and "Merging this fixes AGV202" in fixed.out
