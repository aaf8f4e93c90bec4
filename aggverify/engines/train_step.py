"""The engine that a whole training step brings along: what it leaves in the model is the update."""

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
    """An engine of which nothing is ours.

    Wrapping the model, backward, accumulation, reduction, and the optimizer where there is one are
    the candidate's.
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
        """Add up the shares that its gradient gives: a step's loss is not seen."""
        return sum(losses, Fraction(0))

    def session(self, device: torch.device) -> EngineSession:
        from aggverify.engines.train_step_session import TrainStepSession

        return TrainStepSession(device)


TRAIN_STEP = TrainStepEngine()
