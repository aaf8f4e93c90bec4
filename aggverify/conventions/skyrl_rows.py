"""The step as SkyRL's driver sees it: rows of one width, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aggverify.conventions.base import mask_tensor
from aggverify.oracles import Step
from aggverify.steps.layouts import Layout

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SkyrlRows:
    """The step as SkyRL's driver sees it: one right-padded row per sample, in index order."""

    step: Step
    layout: Layout
    device: torch.device

    @property
    def count(self) -> int:
        return len(self.step.samples)

    @property
    def per_micro_batch(self) -> int:
        return len(self.layout.micro_batches[0][0])

    @property
    def width(self) -> int:
        return max(s.response_length for s in self.step.samples)

    def boundaries(self) -> list[tuple[int, int]]:
        """``(start, end)`` rows of each prompt group; groups are contiguous in index order."""
        return [(members[0], members[-1] + 1) for members in self.step.groups.values()]

    def masks(self, members: Any, dtype: Any, *, original: bool = False) -> Tensor:
        """``(rows, width)`` masks, right-padded with 0; before rejection if ``original``."""
        import torch

        out = torch.zeros(len(members), self.width, dtype=dtype, device=self.device)
        for row, i in enumerate(members):
            sample = self.step.samples[i]
            mask = (sample.original_mask if original else None) or sample.loss_mask
            out[row, : len(mask)] = mask_tensor(mask, np.uint8, self.device)
        return out

    def pad(self, losses: Tensor, members: tuple[int, ...]) -> Tensor:
        """``(rows, width)`` losses from the micro-batch's 1-D concatenation."""
        import torch

        lengths = [self.step.samples[i].response_length for i in members]
        return torch.stack(
            [
                torch.nn.functional.pad(piece, (0, self.width - len(piece)))
                for piece in losses.split(lengths)
            ]
        )
