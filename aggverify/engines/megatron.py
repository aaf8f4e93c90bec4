"""Megatron's two paths as slime and miles drive them: per sample, and per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from aggverify.engines.base import Sizes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class MegatronSample:
    """``loss_func`` returns ``(loss, 1, logs)``; N is the trainer's global batch size."""

    name: str = "megatron-sample"
    title: str = (
        "Megatron sample path: trainer f * K / N * (D*C), schedule / K, mean over D*C ranks: "
        "update = 1/N * sum grad f"
    )
    required: str = "N * sum(w*l) over its own tokens"
    roundings: int = 5
    takes_counts: bool = False

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        scaled = loss * sizes.num_microbatches / sizes.num_rollouts * sizes.world_size
        return scaled / sizes.num_microbatches

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        # Megatron's DDP multiplies its buffer by gradient_scaling_factor, then sums.
        gradient.mul_(1.0 / sizes.world_size)

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        pass

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return sum(losses, Fraction(0)) / sizes.num_rollouts


@dataclass(frozen=True, slots=True)
class MegatronPerToken:
    """``loss_func`` returns ``(loss, num_tokens, logs)`` under ``calculate_per_token_loss``.

    Every CP rank returns the *full* count of the micro-batch, so the all-reduced count is C times
    the tokens of the step and cancels the trainer's ``* C``.
    """

    name: str = "megatron-token"
    title: str = (
        "Megatron per-token path: trainer f * C, DDP sum, / all-reduced num_tokens: "
        "update = sum grad f / tokens"
    )
    required: str = "(tokens of the step) * sum(w*l) over its own tokens"
    roundings: int = 3
    takes_counts: bool = True

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        return loss * sizes.cp_size

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        pass

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        gradient.mul_(1.0 / max(num_tokens, 1))

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return sum(losses, Fraction(0)) * sizes.cp_size / max(sum(num_tokens), 1)
