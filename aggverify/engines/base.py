"""What every engine answers: the trainer's scaling, the collectives, the scalar they amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes an engine may use: they are the trainer's own, never the reducer's."""

    dp_size: int
    cp_size: int
    num_microbatches: int
    num_rollouts: int

    @property
    def world_size(self) -> int:
        return self.dp_size * self.cp_size


class Engine(Protocol):
    """One way to turn local losses into one gradient (parallel.md, "Engines").

    ``value`` is pure and runs in the parent; all else runs in a rank with torch tensors. It is the
    scalar whose gradient ``scale``, backward and the reduction produce.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """The engine in words, with the update it makes."""

    @property
    def required(self) -> str:
        """What a reducer must return per rank and micro-batch for the update to be sum(w*l)."""

    @property
    def roundings(self) -> int:
        """Roundings the engine adds on one token's path from the reducer's value to the update."""

    @property
    def takes_counts(self) -> bool:
        """Whether a token count travels beside the loss and is divided by at the end."""

    def scale(self, loss: Tensor, sizes: Sizes) -> Tensor:
        """The trainer's own factors and the schedule's, before backward."""

    def before_reduction(self, gradient: Tensor, sizes: Sizes) -> None:
        """What happens to a rank's accumulated gradient before it is summed over all ranks."""

    def after_reduction(self, gradient: Tensor, num_tokens: int, sizes: Sizes) -> None:
        """What happens to the sum; ``num_tokens`` is the step's, 0 unless ``takes_counts``."""

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        """The step scalar these local losses amount to; counts are per rank and micro-batch."""
