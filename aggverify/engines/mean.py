"""Engines that average over ranks, as torch DDP and FSDP do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from aggverify.engines.base import Sizes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class MeanOverRanks:
    """torch DDP / FSDP: micro-batches add up, the gradient is averaged over all dp*cp ranks."""

    name: str = "mean"
    title: str = "mean over all dp*cp ranks, micro-batches added: update = 1/(D*C) * sum grad f"
    required: str = "D*C * sum(w*l) over its own tokens"
    roundings: int = 1
    takes_counts: bool = False

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        return loss

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        # DDP divides each rank's bucket first and sums afterwards.
        gradient.div_(sizes.world_size)

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        pass

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return sum(losses, Fraction(0)) / sizes.world_size


@dataclass(frozen=True, slots=True)
class AccumulatedMean:
    """Gradient accumulation that also divides by the number of micro-batches (HF Trainer, SkyRL
    before March 2026)."""

    name: str = "accumulated-mean"
    title: str = "mean over micro-batches and ranks: update = 1/(D*C*K) * sum grad f"
    required: str = "K*D*C * sum(w*l) over its own tokens"
    roundings: int = 2
    takes_counts: bool = False

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        return loss / sizes.num_microbatches

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        MeanOverRanks().before_reduction(gradient, sizes)

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        pass

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return MeanOverRanks().value(losses, num_tokens, sizes) / sizes.num_microbatches
