"""The rank's side of a whole training step: a new model for it, and what is read from that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aggverify.engines import megatron_on_processors as megatron
from aggverify.engines.ddp_session import DdpSession
from aggverify.engines.spec import Arrived, LocalStep
from aggverify.engines.stepping import everywhere, watched

_SCALES = (1.0, 2.0**-8, 2.0**-16, 2.0**-24)
"""Of a GradScaler's scale, tried one after the other while it leaves the step out."""


class StepModel(nn.Module):
    """One parameter entry, 0, per response token of the step; float64.

    ``model(micro_batch)`` is this rank's per-token losses, 1-D, as reducers get them, or with
    ``logits=True`` its logits over whole sequences, 2-D.
    """

    def __init__(self, step: LocalStep, device: torch.device) -> None:
        super().__init__()
        self._step = step
        self.theta = nn.Parameter(torch.zeros_like(step.values, device=device))

    def forward(self, micro_batch: Any, *, logits: bool = False) -> Tensor:
        """``value + gain * theta[token]`` of the micro-batch's tokens, in the case's dtype."""
        if logits:
            return self._step.logits(micro_batch.index, self.theta)
        index, gain = self._step.tokens(micro_batch.index), self._step.gain
        return (self._step.values[index] + gain * self.theta[index]).to(self._step.dtype)


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
        for times in (step.scaler * part for part in _SCALES):
            update, left_out = self._trained(step, times)
            if not left_out:
                break
        step.trained(update)
        return update

    def _trained(self, step: LocalStep, times: float) -> tuple[Tensor, bool]:
        """The update, and whether a scaler has left it out on every rank: then a trainer goes on
        with a smaller scale."""
        model = StepModel(step, self.device)
        without_gpu = megatron.imported() and self.device.type == "cpu"
        around = megatron.on_processors() if without_gpu else nullcontext()
        with watched(step.steps_with, times) as seen, around:
            step.train(model)
        step.clipped(seen.clips)
        theta = model.theta  # another one than before, once fully_shard has been there
        if seen.asked and everywhere(not seen.stepped, self.device):
            return torch.full_like(step.values, torch.nan), True
        update = _whole(theta.detach()).neg()
        if not seen.stepped and not update.any():
            megatrons = getattr(theta, "main_grad", None)
            update = _whole(step.gradient(theta) if megatrons is None else megatrons)
        return update / step.gain, False

    def reduce(self, parts: Sequence[Tensor]) -> Arrived:
        return Arrived(list(parts))


def _whole(tensor: Any) -> Tensor:
    """All of it on every rank: a collective where it is sharded."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full
