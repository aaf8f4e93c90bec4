"""What is verified: torchrl's GRPO loss, which takes one TensorDict, and two of it with a mistake;
``released.py`` has imported it."""

from typing import Any

import torch
from released import GRPOLoss


class Forgets(torch.autograd.Function):
    """As a fused kernel's: backward forgets what it is given."""

    @staticmethod
    def forward(ctx: Any, loss: Any) -> Any:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        return torch.ones_like(upstream)


class ForgetsUpstream(GRPOLoss):
    def forward(self, data: Any) -> Any:
        found = super().forward(data)
        found.loss_objective = Forgets.apply(found.loss_objective)
        return found


class ReportsTwice(GRPOLoss):
    def forward(self, data: Any) -> Any:
        found = super().forward(data)
        found.loss_objective = found.loss_objective + found.loss_objective.detach()
        return found
