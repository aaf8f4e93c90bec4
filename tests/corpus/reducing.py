"""Training steps that reduce gradients over ranks inside the loop over micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from aggverify.conventions import MicroBatch, TrainContext
from tests.corpus.base import Correct, Mutant

Batches = Sequence[MicroBatch]


def _step(model: nn.Module, batches: Batches, ctx: TrainContext, over: int) -> None:
    """All that has been added up so far is summed over ranks after each micro-batch."""
    for batch in batches:
        losses = torch.where(batch.mask.bool(), model(batch), 0.0)
        share: torch.Tensor = losses.sum() / max(batch.num_tokens, 1)
        (share * over).backward()  # type: ignore[no-untyped-call]
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=ctx.dp_cp_group)
            p.grad /= over


def sums_again(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _step(model, batches, ctx, 1)


def averages_again(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """What ranks have the same of is its own average."""
    _step(model, batches, ctx, ctx.world_size)


MUTANTS = (
    Mutant(
        "sums_again",
        20,
        "all_reduce of p.grad in the loop",
        "token_mean",
        "train-step",
        ("AGV204",),
        "summed-again-over-ranks",
        "trainer",
    ),
)
CORRECT = (
    Correct(
        "averages_again", "reduces what is reduced already", "token_mean", "train-step", "trainer"
    ),
)
