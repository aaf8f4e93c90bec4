"""A stored case is replayed exactly as it was found: each field that is lost changes what comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggverify.checks import check
from aggverify.checks.layout import COMBINED
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import Policy
from aggverify.run.outcome.store import StoredCase
from aggverify.run.replay import replay
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests.conftest import EXAMPLES

REDUCERS = """
import torch

def kept(losses, batch):
    return torch.where(torch.cat(batch.local_masks).bool(), losses, torch.zeros_like(losses))

def token_mean(losses, batch):
    return kept(losses, batch).sum() / batch.num_tokens

def wrong_alone(losses, batch):
    return token_mean(losses, batch) / (2 if torch.distributed.get_world_size() == 1 else 1)

def low(losses, batch):
    return kept(losses, batch).float().sum() / torch.tensor(float(batch.num_tokens))

def constant(losses, batch):
    return kept(losses, batch).sum() / (16 * batch.num_rollouts)
"""
FORMULA, DP = "weights_are_the_modes", "independent_of_data_parallel_size"


def case(step: str = "1/1 1/11", micro_batches: str = "0,1") -> Case:
    known = parse_step(step)
    return Case(known, Layout(parse_micro_batches(micro_batches)), plain_losses(known))


def outcome(stored: StoredCase, pool: Pool, against: str | None = None) -> str | None:
    """The code of what comes, if anything does."""
    found = replay(stored, None, None, against, pool=pool).finding
    return None if found is None else found.code


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "r.py"
    path.write_text(REDUCERS)
    return str(path)


LOST: list[tuple[str, dict[str, Any], str, Case, str | None, dict[str, Any], str | None]] = [
    # reducer, claim, check, case, its code, the field as if it were lost, what comes then
    ("token_mean", {"mode": "sample_mean"}, FORMULA, case(), "AGV101", {"mode": None}, None),
    ("token_mean", {"engine": "mean"}, DP, case("1/1 1/11", "0 | 1"), "AGV203",
     {"engine": "sum"}, None),
    ("constant", {"mode": "constant", "divisor": 8.0}, FORMULA, case(), "AGV101",
     {"divisor": 16.0}, None),
    ("constant", {"mode": "constant", "divisor": 16.0,
      "policy": Policy(constant_count="one")}, FORMULA, case(), "AGV101",
     {"policy": Policy()}, None),
]  # fmt: skip


@pytest.mark.parametrize("row", LOST, ids=lambda row: "-".join(row[5]))
def test_the_claim_is_the_one_it_was_found_under(
    row: tuple[str, dict[str, Any], str, Case, str | None, dict[str, Any], str | None],
    file: str,
    shared_pool: Pool,
) -> None:
    function, changes, name, wanted, code, lost, otherwise = row
    base: dict[str, Any] = {"engine": "sum", "mode": "token_mean"} | changes
    claim = Claim(f"{file}:{function}", function, "native", **base)
    stored = StoredCase(wanted, claim, name, "AGV101")
    assert outcome(stored, shared_pool) == code
    assert outcome(replace(stored, claim=replace(claim, **lost)), shared_pool) == otherwise


def test_a_formula_known_to_be_wrong_is_not_asked_again(file: str, shared_pool: Pool) -> None:
    claim = Claim(f"{file}:wrong_alone", "wrong_alone", "native", "sum", "token_mean")
    stored = StoredCase(case("1/1 1/11", "0 | 1"), claim, DP, "AGV203", trust_formula=False)
    assert outcome(stored, shared_pool) == "AGV203"
    assert outcome(replace(stored, trust_formula=True), shared_pool) is None


def test_the_precision_is_settled_again(file: str, shared_pool: Pool) -> None:
    claim = Claim(f"{file}:low", "low", "native", "sum", "token_mean")
    replayed = replay(StoredCase(case(), claim, FORMULA, "AGV101"), pool=shared_pool)
    assert (replayed.subject.computes_in, replayed.finding) == ("float32", None)


def test_the_other_path_is_the_one_it_was(file: str, shared_pool: Pool) -> None:
    other = f"{file}:token_mean"
    old = Claim(other, "token_mean", "native", "mean", "token_mean")
    claim = replace(old, engine="sum", against=old)
    stored = StoredCase(case("1/1 1/11", "0 | 1"), claim, "two_paths_agree", "AGV521")
    assert outcome(stored, shared_pool, other) == "AGV521"
    lost = replace(stored, claim=replace(claim, against=None))
    assert outcome(lost, shared_pool, other) is None


def test_modes_on_offer_are_those_claimed(shared_pool: Pool) -> None:
    target = "tests.corpus.all_shown:mode_without_effect"
    offered = ("token_mean", "sample_mean")
    claim = Claim(
        target,
        "mode_without_effect",
        "skyrl",
        "skyrl-fsdp",
        "token_mean",
        offered=offered,
    )
    name = "switching_the_mode_changes_the_weights"
    stored = StoredCase(case(), claim, name, "AGV503")
    assert outcome(stored, shared_pool) == "AGV503"
    assert outcome(replace(stored, claim=replace(claim, offered=())), shared_pool) is None


def test_auxiliary_terms_are_passed(shared_pool: Pool) -> None:
    target = str(EXAMPLES / "broken" / "kl_local_count.py")
    claim = Claim(target, "reduce", "native", "sum", "token_mean", terms=("kl",))
    stored = StoredCase(case("1/1 1/11", "0 1"), claim, "auxiliary_terms_stay", "AGV207")
    assert outcome(stored, shared_pool) == "AGV207"


def test_what_bounds_the_search_is_the_same(shared_pool: Pool) -> None:
    """Group size, ranks and features: the replayed subject draws from the very same space."""
    path = min((EXAMPLES / "native" / "refusing").glob("*.py"))
    claim = Claim(
        str(path),
        "reduce",
        "native",
        "sum",
        "prompt_mean",
        claimed=frozenset({"rejection", "whole-groups"}),
        without=frozenset({"gathered"}),
        max_world=2,
        group_size=2,
        seed=5,
        budget=Budget("quick", max_examples=3),
    )
    replayed = replay(StoredCase(case(), claim, FORMULA, "AGV101"), pool=shared_pool).subject
    assert replayed.claim == replace(claim, terms=replayed.claim.terms)
    masks = check("masked_tokens_are_not_counted")
    space = masks.space(replayed)
    none = frozenset[str]()
    for lost in ({"group_size": None}, {"max_world": 1}, {"claimed": none}, {"without": none}):
        assert masks.space(replayed.claiming(**lost)) != space
    # Asked again, as check does: this reducer says no to a prompt group that is not whole.
    stored = StoredCase(case(), replace(claim, group_size=None), FORMULA, "AGV101")
    replayed = replay(stored, pool=shared_pool).subject
    assert replayed.keeps_groups_whole
    assert COMBINED.space(replayed) != COMBINED.space(replayed.knowing(refused=()))
