"""Reducers as frameworks write them, several mistakes in one formula: one cause each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.parts import kept, over, sums, total

if TYPE_CHECKING:
    from torch import Tensor

GROUP_SIZE = 2
WINDOWS = 2


def _padded(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Losses and masks of the samples at hand as rows of one width."""
    import torch

    rows = torch.split(kept(losses, batch), [len(mask) for mask in batch.local_masks])
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(list(rows), batch_first=True), pad(batch.local_masks, batch_first=True)


def mean_of_row_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    """TRL's ``grpo``: rows at hand, then accumulation steps, then DDP."""
    rows, masks = _padded(losses, batch)
    return (rows.sum(-1) / masks.sum(-1).clamp(min=1)).mean() / batch.num_microbatches


def critic_loss(losses: Tensor, batch: MicroBatch) -> Tensor:
    """SkyRL's critic: ``masked_mean(dim=-1).mean()``, averaged by the trainer."""
    rows, masks = _padded(losses, batch)
    return (rows.sum(-1) / masks.sum(-1).clamp(min=1)).mean()


def own_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """prime-rl's counts: of each rank of dp x cp for itself."""
    return kept(losses, batch).sum() / max(sum(int(m.sum()) for m in batch.local_masks), 1)


def width_at_hand(losses: Tensor, batch: MicroBatch) -> Tensor:
    """verl's ``seq-mean-token-sum-norm`` without a loss_scale_factor."""
    rows, _ = _padded(losses, batch)
    return rows.sum() / max(rows.shape[-1], 1) / batch.num_rollouts


def sequences_not_counted(losses: Tensor, batch: MicroBatch) -> Tensor:
    """ROLL's sum of sequence means, its 1/N forgotten."""
    counts = [max(n, 1) for n in batch.rollout_tokens]
    return total(s / n for s, n in zip(sums(losses, batch), counts, strict=True))


def several_windows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """TRL's num_items_in_batch: of the generation batch, two optimizer windows."""
    return kept(losses, batch).sum() / max(WINDOWS * batch.num_tokens, 1)


def floored_then_added(losses: Tensor, batch: MicroBatch) -> Tensor:
    """``tokens // cp_size`` of each micro-batch, added up over all ranks."""
    count = max(sum(int(m.sum()) for m in batch.loss_masks) // batch.cp_size, 1)
    return kept(losses, batch).sum() / over(batch.cp_group, over(batch.dp_group, count))


def rows_left_over(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Groups by position, ``view(-1, G)`` of as many rows as fill them."""
    rows, masks = sums(losses, batch), batch.loss_masks
    found = [rows[0] * 0]
    for start in range(0, len(rows) - GROUP_SIZE + 1, GROUP_SIZE):
        count = sum(int(mask.sum()) for mask in masks[start : start + GROUP_SIZE])
        found.append(total(rows[start : start + GROUP_SIZE]) / max(count, 1))
    return total(found) / batch.num_groups


_LAYOUT = ("AGV101", "AGV201", "AGV202", "AGV203")

MUTANTS = (
    Mutant(
        "mean_of_row_means", 1, "TRL grpo", "sample_mean", "mean", _LAYOUT, "mean-of-sample-means"
    ),
    Mutant(
        "critic_loss",
        1,
        "SkyRL's critic",
        "sample_mean",
        "accumulated-mean",
        _LAYOUT,
        "mean-of-sample-means",
    ),
    Mutant(
        "own_tokens",
        2,
        "prime-rl #583, #2358",
        "token_mean",
        "mean",
        _LAYOUT,
        "counted-where-it-stands",
    ),
    Mutant(
        "width_at_hand",
        19,
        "verl core_algos",
        "constant",
        "sum",
        _LAYOUT,
        "padded-width",
        divisor=16.0,
    ),
    Mutant(
        "sequences_not_counted",
        44,
        "ROLL: a missing 1/N",
        "sample_mean",
        "sum",
        ("AGV101",),
        "units-not-divided",
    ),
    Mutant(
        "several_windows",
        7,
        "TRL #5619 / #6024",
        "token_mean",
        "sum",
        ("AGV101",),
        "several-windows-counted",
    ),
    Mutant(
        "floored_then_added",
        67,
        "tokens // cp_size",
        "token_mean",
        "sum",
        ("AGV201",),
        "count-floored",
    ),
    Mutant(
        "rows_left_over",
        29,
        "AReaL #1423; SkyRL #1718 review",
        "prompt_mean",
        "sum",
        _LAYOUT,
        "remainder-dropped",
    ),
)
