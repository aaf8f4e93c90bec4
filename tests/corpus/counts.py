"""Denominators that count something else: phantoms, widths, lengths, attention, an epsilon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept, sums, total, weighted

if TYPE_CHECKING:
    from torch import Tensor

MAX_LENGTH = 1000


def phantom_tokens(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), sum(max(int(m.sum()), 1) for m in batch.loss_masks)


def empty_micro_batch_is_a_token(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), max(sum(int(m.sum()) for m in batch.loss_masks), 1)


def maximum_for_a_floor(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    counts = [torch.tensor(n) for n in batch.rollout_tokens]
    floors = [torch.max(n, 1).values for n in counts]
    return weighted(losses, batch, [n * batch.num_rollouts for n in floors])


def epsilon_outside(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) + 1e-8


def epsilon_inside(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [n + 1e-8 for n in batch.rollout_tokens]
    return weighted(losses, batch, [n * batch.num_rollouts for n in counts])


def padded_width(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / (max(batch.response_lengths) * batch.num_rollouts)


def response_lengths(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), sum(batch.response_lengths)


def response_length_of_each(losses: Tensor, batch: MicroBatch) -> Tensor:
    return weighted(losses, batch, batch.response_lengths)


def attention_mask(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), sum(batch.total_lengths)


def dummy_rows_counted(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    rows, counts = sums(losses, batch), [int(mask.sum()) for mask in batch.loss_masks]
    fill = len(rows) % 2  # repeated with its mask as it is
    return total(rows + rows[-1:] * fill), sum(counts + counts[-1:] * fill)


def sum_still_divided(losses: Tensor, batch: MicroBatch) -> Tensor:
    return weighted(losses, batch, [max(int(m.sum()), 1) for m in batch.loss_masks])


def hardcoded_divisor(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / (MAX_LENGTH * batch.num_rollouts)


def counted_in_bfloat16(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    counts = [torch.tensor(float(n)).bfloat16().double().clamp(min=1) for n in batch.rollout_tokens]
    return weighted(losses, batch, [n * batch.num_rollouts for n in counts])


def sum_for_a_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return total(sums(losses, batch))


def metric_before_the_division(losses: Tensor, batch: MicroBatch) -> Tensor:
    undivided = kept(losses, batch).sum()
    mean = undivided / max(batch.num_tokens, 1)
    return mean + (undivided - mean).detach()


MUTANTS = (
    Mutant(
        "phantom_tokens",
        15,
        "slime since #365; miles #2796",
        "token_mean",
        "megatron-token",
        ("AGV112",),
        "phantom-tokens",
    ),
    Mutant(
        "empty_micro_batch_is_a_token",
        66,
        "empty bins of dynamic batching",
        "token_mean",
        "megatron-token",
        ("AGV112",),
        "empty-micro-batch-counted",
    ),
    Mutant(
        "maximum_for_a_floor",
        16,
        "slime 82d3f94a3",
        "sample_mean",
        "sum",
        ("AGV401",),
        "maximum-along-an-axis",
    ),
    Mutant(
        "epsilon_outside", 17, "keras #21908", "token_mean", "sum", ("AGV132",), "epsilon-outside"
    ),
    Mutant(
        "epsilon_inside",
        18,
        "verl, OpenRLHF, NeMo-RL, ROLL",
        "sample_mean",
        "sum",
        ("AGV101",),
        "epsilon-inside",
    ),
    Mutant(
        "padded_width",
        19,
        "verl core_algos",
        "constant",
        "sum",
        ("AGV101",),
        "padded-width",
        divisor=16.0,
    ),
    Mutant(
        "response_lengths",
        21,
        "slime before #365",
        "token_mean",
        "megatron-token",
        ("AGV101",),
        "response-lengths-counted",
    ),
    Mutant(
        "response_length_of_each",
        21,
        "slime before #365",
        "sample_mean",
        "megatron-sample",
        ("AGV101",),
        "response-lengths-counted",
    ),
    Mutant(
        "attention_mask",
        48,
        "SkyRL #909",
        "token_mean",
        "megatron-token",
        ("AGV101",),
        "attention-mask-counted",
    ),
    Mutant(
        "dummy_rows_counted",
        23,
        "rllm #508",
        "token_mean",
        "megatron-token",
        ("AGV101",),
        "dummy-rows-counted",
    ),
    Mutant(
        "sum_still_divided",
        31,
        "verl 4d722b176",
        "token_sum",
        "sum",
        ("AGV101",),
        "sum-still-divided",
    ),
    Mutant(
        "hardcoded_divisor",
        41,
        "miles Dr.GRPO example, #1328",
        "constant",
        "sum",
        ("AGV101",),
        "hardcoded-divisor",
        divisor=16.0,
    ),
    Mutant(
        "counted_in_bfloat16",
        35,
        "bf16 mask.sum()",
        "sample_mean",
        "sum",
        ("AGV301",),
        "counted-in-16-bits",
    ),
    Mutant(
        "sum_for_a_mean",
        65,
        "a sum where a mean was meant",
        "token_mean",
        "sum",
        ("AGV101",),
        "sum-for-a-mean",
    ),
    Mutant(
        "metric_before_the_division",
        37,
        "TRL #7011",
        "token_mean",
        "sum",
        ("AGV102",),
        "metric-before-a-rescale",
    ),
)
