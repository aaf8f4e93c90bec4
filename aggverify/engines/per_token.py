"""The model that real engines train: its gradient is the weight of every token."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PerToken(nn.Module):
    """One parameter entry, 0, per response token of the step; float64, where engines take that."""

    def __init__(
        self, tokens: int, device: torch.device, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(tokens, dtype=dtype, device=device))

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        """Per-token losses ``value + theta[token]``, 1-D."""
        return values[index] + self.theta[index]


def one_token(
    device: torch.device, dtype: torch.dtype = torch.float64
) -> tuple[PerToken, Tensor, Tensor]:
    """Return the smallest model there is, with its values and its token."""
    values = torch.zeros(1, dtype=torch.float64, device=device)
    return PerToken(1, device, dtype), values, torch.zeros(1, dtype=torch.int64, device=device)
