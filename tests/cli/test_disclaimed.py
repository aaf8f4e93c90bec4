"""``--without``: what a trainer never does is neither generated nor held against the reducer."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.thorough
def test_without_it_the_reducer_conforms(cli: Cli, tmp_path: Path) -> None:
    without = ("--without", "gathered", "--without", "contiguous")
    ran = cli("check", reducer(tmp_path), *BRIEF, *without)
    assert ran.code == 0, ran
    assert "not claimed gathered: disclaimed by --without\n" in ran.out


@pytest.mark.thorough
def test_with_it_the_reducer_is_wrong(cli: Cli, tmp_path: Path) -> None:
    ran = cli("check", reducer(tmp_path), *BRIEF)
    assert ran.code == 1, ran
    assert "- AGV401 Raises an exception" in ran.out


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
