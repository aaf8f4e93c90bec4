"""Means over micro-batches, and the number of micro-batches where it does not belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept, over, tokens, weighted

if TYPE_CHECKING:
    from torch import Tensor

CONFIGURED_STEPS = 2


def micro_batch_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / tokens(batch.loss_masks) * batch.cp_size


def window_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = over(batch.dp_group, tokens(batch.loss_masks))
    return kept(losses, batch).sum() / count * batch.dp_size * batch.cp_size


def means_weighted_by_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    share = len(batch.loss_masks) / batch.num_rollouts
    return kept(losses, batch).sum() / tokens(batch.loss_masks) * share


def divided_by_steps(losses: Tensor, batch: MicroBatch) -> Tensor:
    mean = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return mean * batch.dp_size * batch.cp_size / batch.num_microbatches


def steps_not_divided(losses: Tensor, batch: MicroBatch) -> Tensor:
    share = weighted(losses, batch, [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens])
    return share * batch.num_microbatches * batch.dp_size * batch.cp_size


def configured_steps(losses: Tensor, batch: MicroBatch) -> Tensor:
    mean = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return mean * CONFIGURED_STEPS * batch.dp_size * batch.cp_size


def global_and_steps(losses: Tensor, batch: MicroBatch) -> Tensor:
    share = weighted(losses, batch, [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens])
    return share / batch.num_microbatches


def local_auxiliary_count(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    policy = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return policy + 0.125 * kept(kl, batch).sum() / tokens(batch.loss_masks)


def detached_auxiliary(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The term's value is in the loss, and its gradient nowhere."""
    policy = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return policy + 0.125 * kept(kl.detach(), batch).sum() / max(batch.num_tokens, 1)


def packed_row_is_a_sequence(losses: Tensor, batch: MicroBatch) -> Tensor:
    rows = batch.num_microbatches * batch.dp_size
    return kept(losses, batch).sum() / tokens(batch.loss_masks) / rows


def rows_of_the_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sample mean over the rows at hand, as SkyRL's sequence_mean was."""
    rows = len(batch.rollout_ids)
    return weighted(losses, batch, [max(n, 1) * rows for n in batch.rollout_tokens])


def row_means_weighted_by_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """EasyR1's sequence mean: the rows at hand, times their share of the step's tokens."""
    share = sum(int(m.sum()) for m in batch.loss_masks) / max(batch.num_tokens, 1)
    return rows_of_the_micro_batch(losses, batch) * share


def means_never_divided(losses: Tensor, batch: MicroBatch) -> Tensor:
    """LLaMA-Factory's ASFT loss: a local mean, and nothing divides by the accumulation steps."""
    return kept(losses, batch).sum() / tokens(batch.loss_masks) * batch.cp_size


def floor_after_the_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Liger's dapo: at least one token a rank, where TRL has at least one a step."""
    return kept(losses, batch).sum() / max(batch.num_tokens / (batch.dp_size * batch.cp_size), 1)


def mean_on_the_sample_path(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean over the rows at hand where Megatron's sample path divides by N already."""
    rows = len(batch.rollout_ids)
    return weighted(losses, batch, [max(n, 1) * rows for n in batch.rollout_tokens])


def means_times_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Two mistakes: the micro-batch's own count, and a factor no engine divides by here."""
    return kept(losses, batch).sum() / tokens(batch.loss_masks) * batch.dp_size


_LAYOUT = ("AGV202", "AGV203", "AGV204")

MUTANTS = (
    Mutant(
        "micro_batch_means",
        1,
        "verl #5625, prime-rl #583, transformers #34191, SkyRL before #1296",
        "token_mean",
        "accumulated-mean",
        _LAYOUT,
        "mean-over-cells",
    ),
    Mutant(
        "window_means",
        1,
        "transformers #34191",
        "token_mean",
        "accumulated-mean",
        ("AGV202",),
        "mean-over-micro-batches",
    ),
    Mutant(
        "means_weighted_by_samples",
        4,
        "twinkle #292",
        "token_mean",
        "sum",
        ("AGV101", *_LAYOUT),
        "weighted-by-samples",
    ),
    Mutant(
        "divided_by_steps",
        5,
        "ms-swift #10117",
        "token_mean",
        "mean",
        ("AGV202",),
        "accumulation-twice",
    ),
    Mutant(
        "steps_not_divided",
        6,
        "LLaMA-Factory #7443",
        "sample_mean",
        "mean",
        ("AGV202",),
        "accumulation-missing",
    ),
    Mutant(
        "configured_steps",
        8,
        "ms-swift #10084",
        "token_mean",
        "accumulated-mean",
        ("AGV101", "AGV202"),
        "configured-window",
    ),
    Mutant(
        "global_and_steps",
        13,
        "AReaL #1273",
        "sample_mean",
        "sum",
        ("AGV202",),
        "accumulation-twice",
    ),
    Mutant(
        "detached_auxiliary",
        36,
        "NeMo Automodel #1412",
        "token_mean",
        "sum",
        ("AGV207",),
        "auxiliary-detached",
    ),
    Mutant(
        "local_auxiliary_count",
        36,
        "NeMo-RL #3791",
        "token_mean",
        "sum",
        ("AGV207",),
        "auxiliary-local-count",
    ),
    Mutant(
        "rows_of_the_micro_batch",
        1,
        "SkyRL before #1296",
        "sample_mean",
        "sum",
        ("AGV101", *_LAYOUT),
        "units-counted-where-they-stand",
    ),
    Mutant(
        "row_means_weighted_by_tokens",
        89,
        "EasyR1's loss_avg_mode=seq",
        "sample_mean",
        "sum",
        ("AGV101", *_LAYOUT),
        "weighted-by-tokens",
    ),
    Mutant(
        "means_never_divided",
        6,
        "LLaMA-Factory's use_asft_loss",
        "token_mean",
        "mean",
        _LAYOUT,
        "means-added-up",
    ),
    Mutant(
        "floor_after_the_ranks",
        89,
        "Liger's dapo",
        "token_mean",
        "mean",
        ("AGV101", *_LAYOUT),
        "floor-after-division",
    ),
    Mutant(
        "mean_on_the_sample_path",
        12,
        "slime's and miles' trainer contract",
        "sample_mean",
        "megatron-sample",
        ("AGV101", *_LAYOUT),
        "divided-twice",
    ),
    Mutant(
        "means_times_ranks",
        1,
        "verl #5625 with tmax #9",
        "token_mean",
        "sum",
        _LAYOUT,
        "counted-where-it-stands",
    ),
    Mutant(
        "packed_row_is_a_sequence",
        30,
        "tunix #1662",
        "sample_mean",
        "sum",
        ("AGV101",),
        "packed-row-as-sequence",
    ),
)
