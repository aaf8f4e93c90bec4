"""Fields of a batch that few reducers ask for, made when one does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from aggverify.conventions.base import Site, mask_tensor, placed
from aggverify.conventions.token_labels import Sequences
from aggverify.steps.layouts import positions, visible_pieces
from aggverify.world.candidate_errors import Breach

if TYPE_CHECKING:
    from torch import Tensor


NOT_KNOWN = "the masks of a step of which only the counts are known"


class FieldNotAvailable(Breach):
    """The candidate asks for these masks: steps of that kind are not for it."""

    name = "not available"


class LazyFields:
    """All micro-batches of the rank (its window), and all samples of the step."""

    def __init__(self, site: Site, members: Sequence[int]) -> None:
        self._site, self._members = site, members

    def _masks(self, members: Sequence[int]) -> list[Tensor]:
        step, device = self._site.case.step, self._site.device
        return [mask_tensor(step.samples[i].loss_mask, np.int64, device) for i in members]

    @property
    def _window(self) -> Sequence[Sequence[int]]:
        return self._site.case.layout.micro_batches[self._site.dp_rank]

    def window_masks(self) -> list[list[Tensor]]:
        return [*map(self._masks, self._window)]

    def window_lengths(self) -> list[list[int]]:
        samples = self._site.case.step.samples
        return [[samples[i].response_length for i in cell] for cell in self._window]

    def window_ids(self, unit: str) -> list[list[int]]:
        samples = self._site.case.step.samples
        return [[getattr(samples[i], unit) for i in cell] for cell in self._window]

    def window_tokens(self) -> list[int]:
        return [sum(map(self._site.counted, cell)) for cell in self._window]

    def step_masks(self) -> list[Tensor]:
        if self._site.elsewhere:
            raise FieldNotAvailable(f"it asks for {NOT_KNOWN}")
        return self._masks(range(len(self._site.case.step.samples)))

    def step_ids(self) -> list[int]:
        return [sample.group for sample in self._site.case.step.samples]

    def sequences(self) -> Sequences:
        """Of the batch's own samples."""
        return Sequences.of(self._site, self._members)

    def local_positions(self) -> list[Tensor]:
        import torch

        site = self._site
        pieces = visible_pieces(site.case.step, self._members, site.case.layout, site.cp_rank)
        return [placed(torch.from_numpy(positions([0], [own])), site.device) for own in pieces]
