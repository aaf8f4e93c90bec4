"""The rank's side of the DDP engine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from aggverify.engines import Arrived, LocalStep


class PerToken(nn.Module):
    """The model: one parameter entry per response token of the step."""

    def __init__(self, tokens: int, device: torch.device) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(tokens, dtype=torch.float64, device=device))

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        """Per-token losses ``value + theta[token]``."""
        return values[index] + self.theta[index]


@dataclass(frozen=True, slots=True)
class DdpSession:
    """DDP around a new model for every step, ``no_sync`` on all but the last micro-batch."""

    device: torch.device

    def warm_up(self) -> None:
        """What a process's first DDP sets up, on a model of one token."""
        wrapped = DistributedDataParallel(PerToken(1, self.device))
        values = torch.zeros(1, dtype=torch.float64, device=self.device)
        index = torch.zeros(1, dtype=torch.int64, device=self.device)
        wrapped(values, index).sum().backward()

    def accumulate(self, step: LocalStep) -> Tensor:
        model = PerToken(len(step.values), self.device)
        wrapped = DistributedDataParallel(model)
        for k in range(step.num_microbatches):
            last = k == step.num_microbatches - 1
            with contextlib.nullcontext() if last else wrapped.no_sync():
                step.loss(k, wrapped(step.values, step.tokens(k))).backward()
        return step.gradient(model.theta)

    def reduce(self, parts: Sequence[Tensor]) -> Arrived:
        return Arrived(list(parts))
