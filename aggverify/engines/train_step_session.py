"""The rank's side of a whole training step: a new model for it, and what is read from that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from aggverify.engines import megatron_on_processors as megatron
from aggverify.engines.ddp_session import DdpSession
from aggverify.engines.spec import Arrived, LocalStep


class StepModel(nn.Module):
    """One parameter entry, 0, per response token of the step; float64.

    ``model(micro_batch)`` is this rank's per-token losses, 1-D, as reducers get them.
    """

    def __init__(self, step: LocalStep, device: torch.device) -> None:
        super().__init__()
        self._step = step
        self.theta = nn.Parameter(torch.zeros_like(step.values, device=device))

    def forward(self, micro_batch: Any) -> Tensor:
        """``value + theta[token]`` of the micro-batch's tokens, in the case's dtype."""
        index = self._step.tokens(micro_batch.index)
        return (self._step.values[index] + self.theta[index]).to(self._step.dtype)


@dataclass(frozen=True, slots=True)
class TrainStepSession:
    """Every step has a model of its own, so that nothing of an earlier one remains in it."""

    device: torch.device

    def warm_up(self) -> None:
        """What a process's first DDP and FSDP2 set up, where the candidate has imported that."""
        DdpSession(self.device).warm_up()
        if "torch.distributed.fsdp" in sys.modules:
            from aggverify.engines.fsdp2_session import Fsdp2Session

            with suppress(Exception):  # where it cannot run, the candidate is told so
                Fsdp2Session(self.device).warm_up()

    def accumulate(self, step: LocalStep) -> Tensor:
        model, stepped = StepModel(step, self.device), []

        def note(optimizer: Optimizer, *_: object) -> None:
            step.steps_with(optimizer)
            stepped.append(True)

        hook = register_optimizer_step_post_hook(note)
        without_gpu = megatron.imported() and self.device.type == "cpu"
        try:
            with megatron.on_processors() if without_gpu else nullcontext():
                step.train(model)
        finally:
            hook.remove()
        theta = model.theta  # another one than before, once fully_shard has been there
        update = _whole(theta.detach()).neg()
        if not stepped and not update.any():
            megatrons = getattr(theta, "main_grad", None)
            update = _whole(step.gradient(theta) if megatrons is None else megatrons)
        step.trained(update)
        return update

    def reduce(self, parts: Sequence[Tensor]) -> Arrived:
        return Arrived(list(parts))


def _whole(tensor: Any) -> Tensor:
    """All of it on every rank: a collective where it is sharded."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full
