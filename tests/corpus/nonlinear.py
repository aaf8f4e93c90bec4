"""Objectives that are not linear in their inputs, reduced or selected over too little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Correct, Mutant
from tests.corpus.parts import kept, sums, tokens

if TYPE_CHECKING:
    from torch import Tensor


def shard_geometric_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    counts = torch.tensor([max(int(mask.sum()), 1) for mask in batch.local_masks])
    shards = 1 if batch.gathered else batch.cp_size
    ratios = (torch.stack(sums(losses, batch)) / counts).exp()
    return ratios.sum() / batch.num_rollouts / shards


def selected_per_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps what is not above the micro-batch's own median."""
    import torch

    mask = torch.cat(batch.local_masks).bool()
    here = losses.detach()[mask]
    limit = here.median() if len(here) else 0.0
    small = torch.where(losses.detach() <= limit, kept(losses, batch), 0.0)
    return small.sum() / max(batch.num_tokens, 1)


def centred_over_the_rows_at_hand(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Less the mean of all that is at hand, before the exponential."""
    import torch

    mask = torch.cat(batch.local_masks).bool()
    mean = kept(losses, batch).sum() / tokens(batch.local_masks)
    return torch.where(mask, (losses - mean).exp(), 0.0).sum() / max(batch.num_tokens, 1)


def packed_row_ratios(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A sequence's sum over the tokens of its whole packed row."""
    import torch
    from torch.distributed.nn.functional import all_reduce

    summed, copies = torch.stack(sums(losses, batch)), 1
    if batch.cp_size > 1 and not batch.gathered:
        summed, copies = all_reduce(summed, group=batch.cp_group), batch.cp_size
    return (summed / tokens(batch.loss_masks)).exp().sum() / batch.num_rollouts / copies


def _centred(values: Tensor, counts: list[int], losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each sample's losses less the sum of these values over a count, before the exponential."""
    import torch
    from torch.distributed.nn.functional import all_reduce

    lengths = [len(mask) for mask in batch.local_masks]
    summed = torch.stack([v.sum() for v in values.split(lengths)])
    if batch.cp_size > 1 and not batch.gathered:
        summed = all_reduce(summed, group=batch.cp_group)
    means = (summed / torch.tensor(counts)).repeat_interleave(torch.tensor(lengths))
    mask = torch.cat(batch.local_masks).bool()
    token = (kept(losses, batch) - means).exp()
    return torch.where(mask, token, 0.0).sum() / max(batch.num_tokens, 1)


def centred_with_masked_values(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Less the mean of the whole sample, masked tokens included."""
    return _centred(losses, batch.response_lengths, losses, batch)


def centred_over_what_is_kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The same without them."""
    counts = [max(int(mask.sum()), 1) for mask in batch.loss_masks]
    return _centred(kept(losses, batch), counts, losses, batch)


CORRECT = (
    Correct("centred_over_what_is_kept", "a statistic of one sample alone", "nonlinear", "sum"),
)
MUTANTS = (
    Mutant(
        "centred_with_masked_values",
        27,
        "Soup #723",
        "nonlinear",
        "sum",
        ("AGV122",),
        "masked-values-in-a-statistic",
    ),
    Mutant(
        "centred_over_the_rows_at_hand",
        27,
        "Soup #723",
        "nonlinear",
        "sum",
        ("AGV202", "AGV203", "AGV211"),
        "statistic-over-the-rows-at-hand",
    ),
    Mutant(
        "packed_row_ratios",
        27,
        "ms-swift #9925",
        "nonlinear",
        "sum",
        ("AGV202", "AGV203"),
        "packed-row-tokens",
    ),
    Mutant(
        "shard_geometric_mean",
        27,
        "GSPO, GMPO under context parallelism; slime #2235",
        "nonlinear",
        "sum",
        ("AGV211",),
        "statistic-per-shard",
    ),
    Mutant(
        "selected_per_micro_batch",
        40,
        "AReaL #1730",
        "nonlinear",
        "sum",
        ("AGV212",),
        "selection-per-micro-batch",
    ),
)
