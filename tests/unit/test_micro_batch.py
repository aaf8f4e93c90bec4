"""What a native reducer or an adapter is given beside the losses: rows, and all that is counted."""

from __future__ import annotations

import pytest
import torch

from aggverify.conventions import MicroBatch, Site
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.generation.catalogue import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

STEP = parse_step("2/1 3/101; 5/11 1/1011+1/00")
"""Samples of 1, 3, 2, 4 and 2 tokens."""


def batch(
    cells: str, k: int = 0, dp: int = 0, cp: tuple[int, int, CpKind] = (0, 1, "zigzag")
) -> MicroBatch:
    rank, size, kind = cp
    case = Case(STEP, Layout(parse_micro_batches(cells), size, kind), plain_losses(STEP))
    site = Site(case, None, None, True, dp, rank, None, None, torch.device("cpu"))
    return micro_batch(site, k, Totals(site), "theirs")


def test_it_counts_for_the_step_and_for_the_rank() -> None:
    one = batch("0,1 2 | 4 3", 0)
    assert (one.mode, one.per_token, one.index, one.cp_kind) == ("theirs", True, 0, "zigzag")
    assert (one.num_samples, one.num_valid_samples, one.step_width) == (5, 4, 4)
    assert (one.rank_samples, one.rank_tokens) == (3, 5)
    assert (one.rank_valid_samples, one.rank_rollouts, one.rank_groups) == (3, 3, 2)
    assert (one.window_lengths, one.window_widths) == ([[1, 3], [2]], [3, 2])
    assert one.window_tokens == [3, 2]
    assert [len(ids) for ids in one.window_group_ids] == [2, 1]
    assert one.window_group_ids[0] == one.group_ids
    assert len(one.step_group_ids) == len(one.step_masks)
    assert [one.step_group_ids[i] for i in one.samples] == one.group_ids
    assert one.window_rollout_ids[0] == one.rollout_ids
    assert one.group_rollouts == [2, 2]
    other = batch("0,1 2 | 4 3", 1, 1)
    assert (other.rank_samples, other.rank_tokens, other.index) == (2, 3, 1)
    assert (other.rank_valid_samples, other.rank_rollouts, other.rank_groups) == (1, 1, 1)
    assert other.window_tokens == [0, 3]
    assert other.group_rollouts == [2]
    masks = [[len(mask) for mask in window] for window in other.window_masks]
    assert masks == [[2], [4]]
    assert [mask.tolist() for mask in other.step_masks] == [list(s.loss_mask) for s in STEP.samples]


def test_it_says_which_tokens_a_context_parallel_rank_has() -> None:
    seen = [batch("0,1,2,3,4", 0, 0, (rank, 2, "zigzag")) for rank in (0, 1)]
    for n, sample in enumerate(STEP.samples):
        positions = [one.local_positions[n].tolist() for one in seen]
        assert sorted(positions[0] + positions[1]) == list(range(sample.response_length))
        for one in seen:
            mask = torch.tensor(list(sample.loss_mask))
            assert one.local_masks[n].tolist() == mask[one.local_positions[n]].tolist()


def test_rows_are_padded_and_lead_back_to_the_tokens() -> None:
    one = batch("0,1 2,3,4")
    losses = torch.tensor([5.0, 1.0, 2.0, 3.0], requires_grad=True)
    rows, mask = one.rows(losses)
    assert rows.tolist() == [[5, 0, 0], [1, 2, 3]]
    assert mask.tolist() == [[1, 0, 0], [1, 0, 1]]
    assert one.mask.tolist() == [1, 1, 0, 1]
    (rows * torch.arange(6.0).view(2, 3)).sum().backward()
    assert losses.grad is not None
    assert losses.grad.tolist() == [0, 3, 4, 5]
    left, mask = one.rows(losses, side="left", width="step")
    assert left.tolist() == [[0, 0, 0, 5], [0, 1, 2, 3]]
    assert mask.tolist() == [[0, 0, 0, 1], [0, 1, 0, 1]]
    with pytest.raises(ValueError, match="got side 'up', width 'step'"):
        one.padded(losses, side="up", width="step")  # type: ignore[arg-type]
