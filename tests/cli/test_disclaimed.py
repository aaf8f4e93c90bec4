"""``--without``: what a trainer never does is neither generated nor held against the reducer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.checks.layout import COMBINED
from aggverify.checks.spaces import spread
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.run.opening import opened
from aggverify.run.planning.unsupported_probe import settled
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests.conftest import EXAMPLES, Cli

ZIGZAG_ONLY = """
import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

def local(mask, total, size, rank):
    if size == 1:
        return mask
    chunk, shift = -(-total // (2 * size)), 1 - (total - len(mask))
    ends = [(i * chunk + shift, (i + 1) * chunk + shift) for i in (rank, 2 * size - 1 - rank)]
    return torch.cat([mask[max(a, 0) : max(min(b, len(mask)), 0)] for a, b in ends])

def reduce(losses, batch):
    full = zip(batch.loss_masks, batch.total_lengths, strict=True)
    mine = torch.cat([local(m, n, batch.cp_size, batch.cp_rank) for m, n in full])
    return torch.where(mine.bool(), losses, 0.0).sum() / max(batch.num_tokens, 1)
"""
BRIEF = ("--profile", "quick", "--world", "2", "--max-examples", "2")


def reducer(folder: Path, declared: str = "") -> Path:
    """What slime itself does, which knows of zigzag slices only."""
    path = folder / "r.py"
    path.write_text(ZIGZAG_ONLY.replace('"engine": "sum"', f'"engine": "sum"{declared}'))
    return path


SHARDS = """
import torch

AGGVERIFY = {"mode": "prompt_mean", "engine": "sum"}

def by_groups(losses, batch, ids, masks):
    counts = {}
    for group, mask in zip(ids, masks, strict=True):
        counts[group] = counts.get(group, 0) + int(mask.sum())
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = zip(kept.split([len(m) for m in batch.local_masks]), batch.group_ids, strict=True)
    return sum(piece.sum() / max(counts[group], 1) for piece, group in pieces) / batch.num_groups

def whole_on_a_rank(losses, batch):
    return by_groups(losses, batch, sum(batch.window_group_ids, []), sum(batch.window_masks, []))

def whole_in_a_micro_batch(losses, batch):
    return by_groups(losses, batch, batch.group_ids, batch.loss_masks)

def refuses(losses, batch):
    pairs = zip(sum(batch.window_group_ids, []), sum(batch.window_rollout_ids, []), strict=True)
    mine = {}
    for group, rollout in pairs:
        mine.setdefault(group, set()).add(rollout)
    for group, rollouts in zip(batch.group_ids, batch.group_rollouts, strict=True):
        if len(mine[group]) < rollouts:
            raise ValueError(f"{rollouts - len(mine[group])} rollouts of {group} are elsewhere")
    return whole_on_a_rank(losses, batch)
"""


def test_prompt_groups_that_are_whole_on_every_data_parallel_rank(
    shared_pool: Pool, tmp_path: Path
) -> None:
    """miles' contract: its driver deals whole groups to ranks, not to micro-batches."""
    (tmp_path / "r.py").write_text(SHARDS)
    claim = Claim("r.py", "", "native", "sum", "prompt_mean", without=frozenset({"fan-out"}))
    step = parse_step("2/1 3/101; 5/11 1/1011")
    over = [("0 1 | 3 2", True), ("0 2 | 1 3", False), ("0 1,2,3", True)]
    with opened(shared_pool, {"path": str(tmp_path / "r.py")}) as template:
        ranks = Executor(template)
        for function, wrong in {"whole_on_a_rank": False, "whole_in_a_micro_batch": True}.items():
            subject = Subject.of(replace(claim, function=function))
            kept = subject.claiming(without=claim.without | {"straddling-shards"})
            layouts = [Layout(parse_micro_batches(cells)) for cells, _ in over]
            cases = [Case(step, layout, plain_losses(step)) for layout in layouts]
            inside = spread(kept, min_units=1)
            assert [case in inside for case in cases] == [whole for _, whole in over]
            found = [
                COMBINED.judge(subject, ranks.run(subject, COMBINED.variants(case)))
                for case in cases
            ]
            assert [f is not None for f in found] == [wrong, True, wrong], function


@pytest.mark.thorough
def test_a_reducer_that_refuses_groups_over_ranks_is_judged_on_the_rest(
    shared_pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "r.py").write_text(SHARDS)
    claim = Claim("r.py", "refuses", "native", "sum", "prompt_mean", max_world=2)
    with opened(shared_pool, {"path": str(tmp_path / "r.py")}) as template:
        told = settled(Subject.of(claim), Executor(template))
    [refused] = told.refused
    assert (refused.feature, refused.beyond) == ("straddling-shards", 1)
    assert refused.words == "1 rollouts of 0 are elsewhere"
    assert spread(told).whole_shards and not spread(told).whole_groups


@pytest.mark.thorough
def test_without_it_the_reducer_conforms(cli: Cli, tmp_path: Path) -> None:
    without = ("--without", "gathered", "--without", "contiguous")
    ran = cli("check", reducer(tmp_path), *BRIEF, *without, "-v")
    assert ran.code == 0, ran
    assert "gathered: disclaimed by --without" in ran.out


@pytest.mark.thorough
def test_with_it_the_reducer_is_wrong(cli: Cli, tmp_path: Path) -> None:
    ran = cli("check", reducer(tmp_path), "--exit-first", *BRIEF)
    assert ran.code == 1, ran
    assert "  AGV401  Raises an exception" in ran.out


def test_the_file_may_say_so_and_the_plan_shows_it(cli: Cli, tmp_path: Path) -> None:
    path = reducer(tmp_path, ', "without": ["gathered", "micro-batches"]')
    ran = cli("check", path, "--list")
    assert ran.code == 0, ran
    [line] = [x for x in ran.out.splitlines() if "independent_of_micro_batches" in x]
    assert line.endswith("- not claimed: disclaimed by --without")
    [line] = [x for x in ran.out.splitlines() if "independent_of_context_parallel_size" in x]
    assert "cp ≤ 8 (zigzag, contiguous)" in line


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--claim", "poison", "--without", "poison"), "it is claimed or it is not"),
        (("--without", "gatherd"), "unknown feature 'gatherd'; did you mean 'gathered'?"),
        (("--group-size", "2", "--without", "whole-groups"), "promises whole prompt groups"),
        (("--without", "whole-groups", "--without", "straddling-groups"), "no step would be left"),
        (("--accept", "AGV206"), "--accept takes CODE[:CASE]=REASON"),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, options: tuple[str, ...], sentence: str) -> None:
    ran = cli("check", EXAMPLES / "native" / "sum" / "token_mean.py", *options)
    assert ran.code == 2, ran
    assert sentence in " ".join(ran.err.split())


WHOLE_STEP = """
import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

def reduce(losses, batch):
    own = torch.cat(batch.local_masks).bool()
    return torch.where(own, losses, 0.0).sum() / max(sum(int(m.sum()) for m in batch.step_masks), 1)
"""


@pytest.mark.thorough
def test_one_that_wants_every_mask_is_not_held_to_counts_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(WHOLE_STEP)
    ran = cli("check", "r.py", "--profile", "quick", "--world", "2", "-v")
    assert ran.code == 0, ran
    assert "it asks for the masks of a step of which only the counts are known" in ran.flat
