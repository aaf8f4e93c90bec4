"""The rank's side of torch's DistributedDataParallel."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from aggverify.engines.per_token import PerToken, one_token
from aggverify.engines.spec import CompletedReduction, LocalStep


@dataclass(frozen=True, slots=True)
class DdpSession:
    """DDP around a new model for every step.

    All micro-batches but the last run under ``no_sync``, so that its backward averages gradients;
    ``each``: none does, and every backward averages.
    """

    device: torch.device
    each: bool = False

    def warm_up(self) -> None:
        """Set up what a process's first DDP needs, on a model of one token."""
        model, *given = one_token(self.device)
        DistributedDataParallel(model)(*given).sum().backward()

    def accumulate(self, step: LocalStep) -> Tensor:
        model = PerToken(len(step.values), self.device)
        wrapped = DistributedDataParallel(model)
        for k in range(step.num_microbatches):
            reduces = self.each or k == step.num_microbatches - 1
            with contextlib.nullcontext() if reduces else wrapped.no_sync():
                step.loss(k, wrapped(step.values, step.tokens(k))).backward()  # type: ignore[no-untyped-call]
        return step.gradient(model.theta)

    def reduce(self, parts: Sequence[Tensor]) -> CompletedReduction:
        return CompletedReduction(list(parts))
