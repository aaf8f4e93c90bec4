"""Losses with one advantage a sequence, right and wrong, as TRL, torchtune and Liger write them;
called through ``adapters/sequence_loss.py``."""

from __future__ import annotations

from typing import Any

import torch


def surrogate(log_probs: Any, old: Any, advantages: Any, mask: Any) -> Any:
    ratio = torch.exp(torch.where(mask, log_probs - old, 0.0))
    clipped = ratio.clamp(0.8, 1.2)
    return torch.where(mask, -torch.min(ratio * advantages, clipped * advantages), 0.0)


def right(log_probs: Any, old: Any, advantages: Any, mask: Any, num_rollouts: int) -> Any:
    losses = surrogate(log_probs, old, advantages[:, None], mask)
    return (losses.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / num_rollouts


def padded_length(log_probs: Any, old: Any, advantages: Any, mask: Any, num_rollouts: int) -> Any:
    return surrogate(log_probs, old, advantages[:, None], mask).mean(-1).sum() / num_rollouts


def reports_a_token(log_probs: Any, old: Any, advantages: Any, mask: Any, num_rollouts: int) -> Any:
    """Right but for the value, which has no advantage."""
    loss = right(log_probs, old, advantages, mask, num_rollouts)
    return (
        loss - loss.detach() + right(log_probs, old, -torch.ones_like(advantages), mask, 1).detach()
    )


class OwnBackward(torch.autograd.Function):
    """As a fused kernel's: the gradient is made in forward; backward forgets what it is given."""

    @staticmethod
    def forward(ctx: Any, log_probs: Any, *others: Any) -> Any:
        with torch.enable_grad():
            given = log_probs.detach().requires_grad_()
            loss = right(given, *others)
            (ctx.gradient,) = torch.autograd.grad(loss, given)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        return ctx.gradient, None, None, None, None


class FusedLoss(torch.nn.Module):
    """A class is the target."""

    def forward(self, *given: Any) -> Any:
        return right(*given)


class ShiftsInPlace(FusedLoss):
    def forward(self, log_probs: Any, old: Any, advantages: Any, *given: Any) -> Any:
        loss = super().forward(log_probs, old, advantages, *given)
        old.sub_(1)
        return loss


def forgets_upstream(*given: Any) -> Any:
    return OwnBackward.apply(*given)  # type: ignore[no-untyped-call]
