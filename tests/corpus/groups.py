"""Prompt groups: the wrong number of them, and who belongs to which (rows as SkyRL deals them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import weighted

if TYPE_CHECKING:
    from torch import Tensor

ROLLOUTS_PER_PROMPT = 2


def reduce_loss(loss: Tensor, loss_mask: Tensor) -> Tensor:
    """What SkyRL's workers do with the scaled losses of one micro-batch."""
    return (loss * loss_mask).sum()


def rollouts_for_prompts(losses: Tensor, batch: MicroBatch) -> Tensor:
    return weighted(losses, batch, [batch.num_rollouts * max(n, 1) for n in batch.group_tokens])


def prompts_from_rollouts(losses: Tensor, batch: MicroBatch) -> Tensor:
    prompts = batch.num_rollouts / ROLLOUTS_PER_PROMPT
    return weighted(losses, batch, [prompts * max(n, 1) for n in batch.group_tokens])


def row_means_in_a_group(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
    prompt_boundaries: list[tuple[int, int]],
) -> Tensor:
    scaled = advantages.clone()
    for start, end in prompt_boundaries:
        rows = loss_mask[start:end].sum(dim=1, keepdim=True).clamp(min=1)
        scaled[start:end] /= rows.double() * (end - start) * len(prompt_boundaries)
    return scaled


def groups_by_position(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
    prompt_boundaries: list[tuple[int, int]],
) -> Tensor:
    scaled = advantages.clone()
    for start in range(0, len(scaled), ROLLOUTS_PER_PROMPT):
        rows = slice(start, start + ROLLOUTS_PER_PROMPT)
        count = loss_mask[rows].sum().double().clamp(min=1)
        scaled[rows] /= count * len(prompt_boundaries)
    return scaled


def rows_not_covered(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
    prompt_boundaries: list[tuple[int, int]],
) -> Tensor:
    scaled = advantages * 0
    for start, end in prompt_boundaries:
        if end - start != 1:
            count = loss_mask[start:end].sum().double().clamp(min=1)
            scaled[start:end] = advantages[start:end] / (count * len(prompt_boundaries))
    return scaled


def flag_changes_nothing(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
) -> Tensor:
    return advantages / loss_mask.sum().double().clamp(min=1)


def masked_rows_left_out(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
) -> Tensor:
    counts = loss_mask.sum(dim=1, keepdim=True).double()
    return advantages / (counts.clamp(min=1) * (counts > 0).sum().clamp(min=1))


MUTANTS = (
    Mutant(
        "rollouts_for_prompts",
        44,
        "slime #2090, 6f708931c",
        "prompt_mean",
        "sum",
        ("AGV101",),
        "rollouts-for-prompts",
    ),
    Mutant(
        "prompts_from_rollouts",
        45,
        "slime #2090, miles #1498",
        "prompt_mean",
        "sum",
        ("AGV101",),
        "prompts-from-rollouts",
    ),
    Mutant(
        "row_means_in_a_group",
        28,
        "TRL #5828",
        "prompt_mean",
        "skyrl-fsdp",
        ("AGV101",),
        "row-means-in-a-group",
        convention="skyrl",
    ),
    Mutant(
        "groups_by_position",
        29,
        "AReaL #1423, #1673",
        "prompt_mean",
        "skyrl-fsdp",
        ("AGV101",),
        "groups-by-position",
        convention="skyrl",
    ),
    Mutant(
        "rows_not_covered",
        46,
        "SkyRL #1718 review",
        "prompt_mean",
        "skyrl-fsdp",
        ("AGV101",),
        "rows-not-covered",
        convention="skyrl",
    ),
    Mutant(
        "flag_changes_nothing",
        32,
        "autonomous-dev #413",
        "sample_mean",
        "skyrl-fsdp",
        ("AGV101",),
        "another-mode",
        convention="skyrl",
    ),
    Mutant(
        "masked_rows_left_out",
        20,
        "verl",
        "sample_mean",
        "skyrl-fsdp",
        ("AGV112",),
        "empty-units-left-out",
        convention="skyrl",
    ),
)
