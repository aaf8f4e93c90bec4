"""The rank's side of accelerate: ``accumulate`` and ``backward``, as HF's trainers call them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.engines.per_token import PerToken, one_token
from aggverify.engines.spec import CompletedReduction, LocalStep


@dataclass(frozen=True, slots=True)
class AccelerateSession:
    """An Accelerator around a new model for every step.

    It wraps it in DDP, divides each micro-batch's loss by their number, and reduces gradients after
    the last one.
    """

    device: torch.device

    def warm_up(self) -> None:
        """Make the process's first Accelerator, which reads variables that a launcher sets."""
        rank, world = str(dist.get_rank()), str(dist.get_world_size())
        launched = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world}
        launched |= {"LOCAL_WORLD_SIZE": world, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        with mock.patch.dict(os.environ, launched):
            accelerator = self._accelerator(1)
        model, *given = one_token(self.device)
        accelerator.prepare_model(model)(*given).sum().backward()

    def accumulate(self, step: LocalStep) -> Tensor:
        model = PerToken(len(step.values), self.device)
        accelerator = self._accelerator(step.num_microbatches)
        wrapped = accelerator.prepare_model(model)
        for k in range(step.num_microbatches):
            with accelerator.accumulate(wrapped):
                accelerator.backward(step.loss(k, wrapped(step.values, step.tokens(k))))
        return step.gradient(model.theta)

    def reduce(self, parts: Sequence[Tensor]) -> CompletedReduction:
        return CompletedReduction(list(parts))

    def _accelerator(self, micro_batches: int) -> Any:
        from accelerate import Accelerator

        cpu = self.device.type == "cpu"
        return Accelerator(cpu=cpu, gradient_accumulation_steps=micro_batches)
