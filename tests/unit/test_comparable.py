"""What of a verdict document can be compared: identities, figures, and nothing of the clock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify import model
from aggverify.codes.identity import About, Identity
from aggverify.execution.options import default
from aggverify.run.outcome.verdict import Relevance
from tests import verdicts
from tests.conftest import EXAMPLES, Cli

TWO = verdicts.verdict(reports=2)
FIRST, SECOND = TWO.reports


def test_an_identity_is_coarse() -> None:
    about = About("r.py:reduce", "token_mean", "sum")
    assert FIRST.identity == Identity(about, "AGV201", ("cp_size",), "1/cp_size")
    assert SECOND.identity == FIRST.identity, "on another case"
    more = replace(FIRST, relevance=Relevance(("loss values", "cp_size", "prompt lengths")))
    assert more.identity == FIRST.identity, "what is the case's is not the finding's"
    other = replace(FIRST, relevance=Relevance(("dp_size",)))
    assert other.identity != FIRST.identity
    (finding, _) = verdicts.written(TWO).verdicts[0].findings
    assert finding.identity == FIRST.identity


def test_what_was_asked_for_and_what_the_clock_cut_is_told() -> None:
    cut = replace(TWO, cuts=(model.Cut("a check", 3, 25),))
    (written,) = verdicts.written(cut).verdicts
    assert written.cuts == (model.Cut("a check", 3, 25),)
    assert written.asked.profile == default("profile") and written.asked.max_world == 8
    assert verdicts.written(cut).environment.backend == "gloo"


def test_the_clock_and_the_order_of_threads_have_no_part_in_what_is_compared() -> None:
    slow = verdicts.written(replace(TWO, call_milliseconds=20))
    fast = verdicts.written(replace(TWO, call_milliseconds=30))
    assert slow != fast and model.comparable(slow) == model.comparable(fast)
    assert all(f.detail is None for v in model.comparable(slow).verdicts for f in v.findings)
    assert model.comparable(slow).verdicts[0].findings[0].message


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["broken/micro_batch_token_mean.py", "native/sum/token_mean.py"])
def test_the_same_run_twice_is_the_same_to_the_byte(name: str, cli: Cli, tmp_path: Path) -> None:
    texts = []
    for folder in ("a", "b"):
        cli("check", EXAMPLES / name, "--mode", "token_mean", "--profile", "quick",
            "--max-time", "900", "--report", "json", "--report-dir", folder)  # fmt: skip
        text = (tmp_path / folder / "verdict.json").read_text().replace('"b"', '"a"')
        texts.append(model.render(model.comparable(model.from_json(json.loads(text)))))
    assert texts[0] == texts[1]
