"""Plain sum over ranks and micro-batches: the Tinker contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from aggverify.engines.base import Sizes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PlainSum:
    """Gradients are added over micro-batches and ranks; nothing is averaged."""

    name: str = "sum"
    title: str = "plain sum over ranks and micro-batches: update = sum grad f"
    required: str = "sum(w*l) over its own tokens"
    roundings: int = 0
    takes_counts: bool = False

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        return loss

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        pass

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        pass

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return sum(losses, Fraction(0))
