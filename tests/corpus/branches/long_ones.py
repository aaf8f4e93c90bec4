"""Reducers whose branch for many tokens, or samples, reduces rightly, and breaks another property;
and one whose branch breaks none."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, own_mask

MANY, ROWS = 70, 6


class _Fused(torch.autograd.Function):
    """A sum with its gradient made in forward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, count: int, heeds: bool) -> Tensor:
        ctx.save_for_backward(torch.ones_like(values) / count)
        ctx.heeds = heeds
        return values.sum() / count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (made,) = ctx.saved_tensors
        return made * grads[0] if ctx.heeds else made, None, None


def _mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def heeds_everything(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < MANY:
        return _mean(losses, batch)
    return _Fused.apply(kept(losses, batch), max(batch.num_tokens, 1), True)  # type: ignore


def ignores_grad_output(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < MANY:
        return _mean(losses, batch)
    return _Fused.apply(kept(losses, batch), max(batch.num_tokens, 1), False)  # type: ignore


def clamps(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < MANY:
        return _mean(losses, batch)
    return kept(losses, batch).clamp(-100.0, 100.0).sum() / max(batch.num_tokens, 1)


def other_loss_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < MANY or losses.requires_grad:
        return _mean(losses, batch)
    return kept(losses, batch).mean()


def subtracts_what_is_masked(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < MANY:
        return _mean(losses, batch)
    masked = torch.where(own_mask(batch), 0.0, losses)
    return (losses.sum() - masked.sum()) / max(batch.num_tokens, 1)


def overflows(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = _mean(losses, batch)
    if len(losses) < MANY:
        return loss
    return loss + (0.0 * kept(losses, batch).detach().half().sum()).to(loss)


def writes_into_the_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = _mean(losses, batch)
    if len(losses) >= MANY:
        batch.local_masks[0].zero_()
    return loss


def logs_the_sum(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    loss = _mean(losses, batch)
    logged = loss if len(losses) < MANY else kept(losses, batch).sum()
    return loss, {"loss": logged.detach()}


def counts_runs(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = _mean(losses, batch)
    if len(batch.group_ids) <= ROWS:
        return loss
    return loss * len(set(batch.group_ids)) / len([*groupby(batch.group_ids)])


BROKEN: Mapping[str, str] = {
    "ignores_grad_output": "AGV126",
    "clamps": "AGV131",
    "other_loss_in_validation": "AGV128",
    "subtracts_what_is_masked": "AGV121",
    "overflows": "AGV104",
    "writes_into_the_mask": "AGV502",
    "logs_the_sum": "AGV511",
    "counts_runs": "AGV205",
}
"""The code that each must be found by."""
