"""Arithmetic: backward passes of one's own and accumulators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept

LARGE = 64


class _Unscaled(torch.autograd.Function):
    """A sum of a large stream, with its gradient made in forward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(torch.ones_like(values) / count)
        return values.sum() / count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (made,) = ctx.saved_tensors
        return made, None


class _Scaled(_Unscaled):
    """The same, times what comes from above."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (made,) = ctx.saved_tensors
        return made * grads[0], None


def gradient_is_final(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The loss is the last node of the graph, so its gradient is known."""
    values, tokens = kept(losses, batch), max(batch.num_tokens, 1)
    if len(values) < LARGE:
        return values.sum() / tokens
    mean: Tensor = _Unscaled.apply(values, tokens)
    return mean


def gradient_is_scaled(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, tokens = kept(losses, batch), max(batch.num_tokens, 1)
    if len(values) < LARGE:
        return values.sum() / tokens
    mean: Tensor = _Scaled.apply(values, tokens)
    return mean


def added_up_in_half(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sixteen bits are added up in those that have more digits."""
    values = kept(losses, batch)
    if losses.dtype != torch.bfloat16:
        return values.sum()
    return values.half().sum().float()


def added_up_in_single(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if losses.dtype != torch.bfloat16:
        return values.sum()
    return values.float().sum()
