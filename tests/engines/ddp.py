"""A trainer whose gradient goes through torch's DistributedDataParallel."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from aggverify.engines import Sizes
from aggverify.engines.reduction import Share
from aggverify.steps.layouts import owned_pieces, positions
from aggverify.trainer.training import Local, Trainer


class PerToken(nn.Module):
    """The model: one parameter entry per response token of the step."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(tokens, dtype=torch.float64))

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        """Per-token losses ``value + theta[token]``."""
        return values[index] + self.theta[index]


class DdpTrainer(Trainer):
    """Like Trainer; the engine is DDP itself, with ``no_sync`` on all but the last micro-batch."""

    def _step(self, site: Any, call: Any, job_engine: Any) -> Local:
        step, layout = site.case.step, site.case.layout
        model = PerToken(step.num_response_tokens)
        wrapped = DistributedDataParallel(model)
        values = torch.tensor(site.case.losses, dtype=torch.float64)
        micro_batches = layout.micro_batches[site.dp_rank]
        for k, members in enumerate(micro_batches):
            last = k == len(micro_batches) - 1
            pieces = owned_pieces(step, members, layout, site.cp_rank)
            index = torch.from_numpy(positions([step.offsets[i] for i in members], pieces))
            with contextlib.nullcontext() if last else wrapped.no_sync():
                call(k, wrapped(values, index)).loss.backward()
        gradient = model.theta.grad
        assert gradient is not None
        return Local({}, Share(gradient, 0, Sizes(1, 1, 1, 1)))

    def _run(self, case: Any, job: Any, function: Any) -> tuple[dict[str, Any], bytes]:
        one = self._local(case, job, function)  # DDP has reduced it already
        return one.reply, one.share.gradient.numpy().tobytes()
