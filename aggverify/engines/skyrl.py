"""SkyRL's FSDP worker: the loss arrives as a sum, the trainer multiplies by the DP size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from aggverify.engines.base import Sizes
from aggverify.engines.mean import MeanOverRanks

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SkyrlFsdp:
    """``f * D`` per micro-batch, mean over ranks (skyrl_train worker since March 2026)."""

    name: str = "skyrl-fsdp"
    title: str = "SkyRL FSDP worker: trainer f * D, mean over D*C ranks: update = sum grad f"
    required: str = "sum(w*l) over its own tokens"
    roundings: int = 2
    takes_counts: bool = False

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        return loss * sizes.dp_size

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        MeanOverRanks().before_reduction(gradient, sizes)

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        pass

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return MeanOverRanks().value(losses, num_tokens, sizes) * sizes.dp_size
