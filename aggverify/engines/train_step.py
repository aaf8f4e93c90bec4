"""The engine of a candidate that is a whole training step: what it leaves in the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from aggverify.engines.spec import EngineSession, Sizes, Usual

if TYPE_CHECKING:
    import torch

SMALL, LARGE = 2.0**-20, 2.0**16
"""Derivatives of a token's loss by the model's parameter: with the one, gradients are smaller than
norms they are clipped at, with the other larger. Powers of two, which round nothing."""


@dataclass(frozen=True, slots=True)
class TrainStepEngine(Usual):
    """An engine that is all the candidate's.

    It wraps the model itself, runs backward, accumulates and reduces gradients, and may have an
    optimizer.
    """

    name: str = "train-step"
    title: str = "the training step's own: update = what it leaves in the model"
    trainers: str = "the convention trainer, whatever it wraps the model in"
    does: str = "runs the whole step itself"
    required: str = "nothing: the gradient it leaves must be that of sum(w*l)"
    roundings: int = 4
    """A factor of the loss, one of the gradient, the average over ranks, the learning rate."""
    takes_counts: bool = False
    merges: bool = False
    preloads: tuple[str, ...] = ("torch._dynamo", "torch.distributed.fsdp")
    guessed: bool = False

    def available(self) -> str | None:
        return None

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        """Add up shares: a step reports no loss, so each is made of the gradient it leaves."""
        return sum(losses, Fraction(0))

    def session(self, device: torch.device) -> EngineSession:
        from aggverify.engines.train_step_session import TrainStepSession

        return TrainStepSession(device)


TRAIN_STEP = TrainStepEngine()
