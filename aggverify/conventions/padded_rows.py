"""Padded rows of what a micro-batch has in one piece.

It imports torch alone: ``replay --export`` copies this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Side = Literal["right", "left"]
Width = Literal["micro-batch", "step"]


class PaddedRows:
    """Rows of the samples of a micro-batch, for reducers that work on dense tensors."""

    __slots__ = ()
    local_masks: list[Tensor]
    step_width: int

    def padded(
        self,
        values: Tensor | Sequence[Tensor],
        *,
        side: Side = "right",
        width: Width = "micro-batch",
    ) -> Tensor:
        """``(B, T)`` rows, one a sample, with 0 on the padded ``side``.

        ``values`` is 1-D as the losses are, or one tensor a sample, as ``local_masks``; gradients
        flow back. T is the longest of them, or under ``width="step"`` of the step's responses.
        """
        import torch

        if side not in ("right", "left") or width not in ("micro-batch", "step"):
            raise ValueError(
                f"rows are padded right or left, to the width of the micro-batch or step; got "
                f"side {side!r}, width {width!r}"
            )
        if isinstance(values, torch.Tensor):
            values = values.split_with_sizes([*map(len, self.local_masks)])
        longest = self.step_width if width == "step" else max(map(len, values), default=0)
        padding = [(0, longest - len(row))[:: 1 if side == "right" else -1] for row in values]
        pad = torch.nn.functional.pad
        return torch.stack([pad(row, by) for row, by in zip(values, padding, strict=True)])

    def rows(
        self, losses: Tensor, *, side: Side = "right", width: Width = "micro-batch"
    ) -> tuple[Tensor, Tensor]:
        """Return the losses and their masks as padded ``(B, T)`` rows."""
        masks = self.padded(self.local_masks, side=side, width=width)
        return self.padded(losses, side=side, width=width), masks
