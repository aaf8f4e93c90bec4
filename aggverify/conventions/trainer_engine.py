"""An engine-like object, ``forward_backward(batch)`` and ``step()``.

It is a whole training step where the loop over micro-batches is its trainer's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.trainer import TrainContext, TrainStepFunction

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class TrainerEngine(TrainStepFunction):
    """A function that makes such an object for every step, with its own model.

    All of the rank's micro-batches are given to it in order, then it steps.
    """

    name: str = "trainer-engine"
    title: str = "an engine that takes micro-batches and steps"
    usual_name: str = "make_engine"
    signature: str = (
        "def make_engine(model: nn.Module, ctx: aggverify.TrainContext) -> an object with "
        "forward_backward(batch: aggverify.MicroBatch) and step()"
    )
    parameters: tuple[str, ...] = ("model", "ctx")

    def recognises(self, offer: Offer) -> bool:
        """By its name, too: others make other things of a model and a context."""
        named = "engine" in offer.name.lower()
        return named and offer.parameters[:2] == self.parameters and offer.takes(2)

    def drive(
        self, function: Callable[..., Any], model: nn.Module, batches: list[Any], ctx: TrainContext
    ) -> None:
        engine = function(model, ctx)
        for batch in batches:
            engine.forward_backward(batch)
        engine.step()
