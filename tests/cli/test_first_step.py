"""A reducer that does not get through the simplest step is told so, and nothing else is run."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.planning.request import Request
from aggverify.run.search.smoke import simplest, smoke_test, taken
from aggverify.testing.ranks import SharedRanks
from aggverify.world import Pool
from tests.choosing import thorough_but
from tests.conftest import Cli

HEAD = """import torch


def reduce(losses, batch):
    kept = torch.cat(batch.local_masks) * losses
"""
FAILS: dict[str, tuple[str, str, str]] = {
    "typo": (f"{HEAD}    return kept.sum() / batch.num_tokns\n", "AGV401", "attribute 'num_tokns'"),
    "name": (f"{HEAD}    return kep.sum()\n", "AGV401", "NameError: name 'kep' is not defined"),
    "vector": (f"{HEAD}    return kept\n", "AGV501", "must return a scalar, got shape (3,)"),
    "none": (f"{HEAD}    kept.sum()\n", "AGV501", "must return a tensor, got NoneType"),
    "tuple": (f"{HEAD}    return 1, 2, 3, 4\n", "AGV401", "got a tuple of 4"),
    "detached": (f"{HEAD}    return kept.sum().detach()\n", "AGV501", "cut off from the losses"),
    "refuses": (f"{HEAD}    raise ValueError('not today')\n", "AGV401", "ValueError: not today"),
    "arity": ("def reduce(losses):\n    return losses.sum()\n", "AGV401", "takes 1 positional"),
}  # fmt: skip
EVERY = ("--report", "json,junit,md,html,text", "--report-dir", "o")


def written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "o" / "verdict.json").read_text())
    return found


@pytest.mark.parametrize(
    "name", thorough_but(FAILS, lambda name: name in ("typo", "vector", "tuple"), ids=str)
)
def test_the_first_error_is_all_there_is(cli: Cli, tmp_path: Path, name: str) -> None:
    source, code, message = FAILS[name]
    (tmp_path / "r.py").write_text(source)
    ran = cli("check", "r.py:reduce", "--convention", "native", *EVERY)
    assert ran.code == 1, ran
    made = written(tmp_path)
    [verdict] = made["verdicts"]
    [found] = verdict["findings"]
    assert (found["code"], found["confirmed"]) == (code, True)
    assert message in found["message"]
    assert verdict["executed"] <= 6, "nothing else is run"
    assert {c["state"] for c in verdict["checks"]} <= {
        "failed", "not judged", "not claimed", "left out"
    }  # fmt: skip
    assert [c["name"] for c in verdict["checks"] if c["state"] == "failed"] == [found["check"]]
    given = {told["name"]: (told["kind"], told["value"]) for told in found["call"]["given"]}
    assert given["losses"] == ("float64 tensor, 3", "[0.0625, 0.25, 0.4375]")
    batch = "batch" if name != "arity" else "argument 2"
    assert given[f"{batch}.loss_masks[0]"] == ("int64 tensor, 3", "[1, 1, 1]")
    assert given[f"{batch}.num_tokens"] == ("int", "3")
    assert found["call"]["returns"].startswith("loss, (loss, count)")
    texts = [(tmp_path / "o" / n).read_text() for n in ("junit.xml", "summary.md", "report.html")]
    for text in (*texts, ran.out, (tmp_path / "o" / "report.txt").read_text()):
        assert re.search(
            "does not get through the simplest step|nothing else was run", text, re.IGNORECASE
        )
        assert "[0.0625, 0.25, 0.4375]" in text
        assert "it must return" in text
    assert "aggverify/" not in ran.out, "a frame of ours"
    if code == "AGV401" and name not in ("arity", "tuple"):
        assert f'File "{tmp_path}/r.py", line ' in ran.out
    assert "\n  fix " not in ran.out and "you compute" not in ran.out
    assert "! assumed" not in ran.out, "nothing was judged under any engine"


def test_the_failure_is_run_again_by_its_id(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(FAILS["typo"][0])
    ran = cli("check", "r.py", "--mode", "token_mean", *EVERY)
    [found] = written(tmp_path)["verdicts"][0]["findings"]
    _, *asked = found["replay"]
    assert asked[-2:] == ["--report-dir", "o"] and shlex.join(found["replay"]) in ran.out
    assert "--accept" not in ran.out, "nothing would be judged of it"
    again = cli(*asked)
    assert (again.code, again.out.split()[0]) == (1, "FAILED"), again
    (tmp_path / "r.py").write_text(FAILS["typo"][0].replace("tokns", "tokens"))
    fixed = cli("replay", found["id"], "--report-dir", "o")
    assert (fixed.code, fixed.out.split()[0]) == (0, "FIXED"), fixed


def test_a_hook_shows_both_of_its_calls(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def get_pg_loss_reducer(total_lengths, response_lengths, loss_masks,\n"
        "                        calculate_per_token_loss=False):\n"
        "    return lambda x: x.summ()\n"
    )
    assert cli("check", "r.py", *EVERY).code == 1
    call = written(tmp_path)["verdicts"][0]["findings"][0]["call"]
    names = [told["name"] for told in call["given"]]
    assert names[:3] == ["total_lengths", "response_lengths", "loss_masks[0]"]
    assert names[-1] == "the returned function's x"
    assert call["returns"].startswith("a function of the losses")


FLOOR = "    n = torch.max(torch.tensor(batch.num_tokens), 1).values\n    return kept.sum() / n\n"


@pytest.mark.parametrize(
    ("source", "bug"), [(f"{HEAD}{FLOOR}", "maximum-along-an-axis"), (FAILS["typo"][0], None)]
)
def test_an_exception_is_given_the_bug_that_it_is_known_by(
    shared_pool: Pool, tmp_path: Path, source: str, bug: str | None
) -> None:
    path = tmp_path / "r.py"
    path.write_text(source)
    subject = Subject.of(Claim(str(path), "reduce", "native", "sum", "token_mean"))
    with opened(shared_pool, {"path": str(path)}) as template:
        seen = smoke_test(subject, Executor(template))
    assert seen is not None
    known = seen.diagnosis.bug if seen.diagnosis is not None else None
    assert (known.name if known is not None else None) == bug


SOMETIMES = {
    "on other steps": "    if batch.num_rollouts > 1:\n        raise KeyError('other steps')\n",
    "not on several ranks": "    if batch.dp_size == 1:\n        raise ValueError('dp only')\n",
    "not on one shard": "    assert batch.cp_size > 1, 'cp only'\n",
}


@pytest.mark.parametrize("when", SOMETIMES)
def test_what_gets_through_a_simple_step_is_left_to_the_checks(
    shared_pool: Pool, tmp_path: Path, when: str
) -> None:
    path = tmp_path / "r.py"
    path.write_text(f"{HEAD}{SOMETIMES[when]}    return kept.sum() / batch.num_tokens\n")
    subject = Subject.of(Claim(str(path), "reduce", "native", "sum", "token_mean"))
    with opened(shared_pool, {"path": str(path)}) as template:
        assert smoke_test(subject, Executor(template)) is None


@pytest.mark.parametrize("size", [None, 1, 2, 3, 5])
def test_the_simplest_step_keeps_what_was_promised(size: int | None) -> None:
    claim = Claim("r.py", "reduce", "native", "sum", "token_mean", group_size=size, max_world=2)
    for n, case in enumerate(simplest(Subject.of(claim))):
        groups = case.step.groups.values()
        assert all(len(group) == (size or 1) for group in groups)
        assert n or case.step.num_response_tokens == max(3, size or 1)
        assert n or case.layout.is_trivial
        assert case.layout.world_size <= 2


TOLD = """import torch


def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None,
             global_batch_size=None, loss_scale_factor=None):
    if loss_agg_mode in ("token-mean", "token-sum"):
        return torch.where(loss_mask.bool(), loss_mat, 0).sum()
    if loss_agg_mode == "seq-mean-token-sum":
        return loss_mat[loss_agg_mode]
    raise ValueError(f"no {loss_agg_mode}")
"""


def test_a_mode_that_nobody_asked_for_and_the_function_refuses_is_said(
    shared_pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "r.py").write_text(TOLD)
    modes = ("token_mean", "constant", "sequence_sum", "sample_mean", "token_sum")
    claims = [
        Claim("r.py", "agg_loss", "verl", "mean", mode, 16.0 if mode == "constant" else None)
        for mode in modes
    ]
    unsaid = [Subject.of(replace(c, offered=modes)).knowing(mode_declared=False) for c in claims]
    with opened(shared_pool, {"path": str(tmp_path / "r.py")}) as template:
        ranks = Executor(template)
        found = taken(unsaid, ranks)
        # What fails in another way is no refusal.
        assert [s.mode for s in found] == ["token_mean", "sequence_sum", "token_sum"]
        assert {s.offered for s in found} == {("token_mean", "sequence_sum", "token_sum")}
        assert found[0].notes == (
            "refuses constant, which is not judged (--mode constant asks for it): 'no "
            "seq-mean-token-sum-norm'",
            "refuses sample_mean, which is not judged (--mode sample_mean asks for it): 'no "
            "seq-mean-token-mean'",
        )
        said = [s.knowing(mode_declared=True) for s in unsaid]
        assert taken(said, ranks) == tuple(said)
        every = [s for s in unsaid if s.mode in ("constant", "sample_mean")]
        assert taken(every, ranks) == tuple(every), "all of it refused is no verdict on the rest"


@pytest.mark.thorough
def test_a_test_of_every_mode_is_one_of_those_that_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.py").write_text(TOLD)
    ranks = SharedRanks()
    try:
        wanted = Request("r.py:agg_loss", max_world=1)
        found = ranks.of(wanted, ()).subjects(wanted)
    finally:
        ranks.close()
    assert [s.mode for s in found] == ["token_mean", "sequence_sum", "token_sum"]


@pytest.mark.thorough
def test_asked_for_by_name_a_refused_mode_fails(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(TOLD)
    ran = cli("check", "r.py:agg_loss", "--mode", "constant", "--divisor", "4", "--world", "1")
    assert ran.code == 1 and "no seq-mean-token-sum-norm" in ran.out, ran
