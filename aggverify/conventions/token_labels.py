"""Token ids and labels of a micro-batch, and the logits that a training step may ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aggverify.conventions.base import Site, placed
from aggverify.steps.layouts import Index
from aggverify.steps.sequences import before, row_positions, token_ids

if TYPE_CHECKING:
    from torch import Tensor

    from aggverify.conventions.lazy_fields import LazyFields

FAR = {"float16": 2.0**10}
USUALLY_FAR = 2.0**14
"""How far the entry of no token is above all others, by dtype and usually: exp of minus that is 0
even when divided by a temperature of 20."""
IGNORED = -100
"""The label of what is not trained on, as torch's cross entropy has it."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token ids and labels of a micro-batch, one array a sample, prompts included."""

    ids: Sequence[Index]
    labels: Sequence[Index]
    """The ids where the loss mask is 1, IGNORED elsewhere; not shifted."""
    positions: Sequence[Index]
    """Those whose logits the rank has."""

    @staticmethod
    def of(site: Site, members: Sequence[int]) -> Sequences:
        """Of a micro-batch on a rank."""
        step = site.case.step
        every, labels = token_ids(step), []
        for i in members:
            mask = np.frombuffer(step.samples[i].loss_mask, np.uint8)
            trained = np.concatenate([np.zeros(before(step.samples[i]), np.uint8), mask])
            labels.append(np.where(trained == 1, every[i], IGNORED))
        positions = row_positions(step, members, site.case.layout, site.cp_rank)
        return Sequences([every[i] for i in members], labels, positions)

    @property
    def local_labels(self) -> list[Index]:
        """What each of these positions is trained to predict: shifted, then cut."""
        found = []
        for labels, own in zip(self.labels, self.positions, strict=True):
            shifted = np.append(labels[1:], IGNORED)
            found.append(shifted[own])
        return found


class HasTokens:
    """What a micro-batch has of whole sequences, prompts included; lists with a tensor a sample."""

    __slots__ = ()
    local_masks: list[Tensor]
    _lazy: LazyFields | None

    @property
    def input_ids(self) -> list[Tensor]:
        """Token ids, int64, one more than tokens where the prompt is empty: a tokenizer's first."""
        return self._tensors("ids")

    @property
    def labels(self) -> list[Tensor]:
        """As ``input_ids``, with -100 where the loss mask is 0 and in the prompt; not shifted."""
        return self._tensors("labels")

    @property
    def position_ids(self) -> list[Tensor]:
        """Positions of this rank's logits, in the order of ``model(batch, logits=True)``."""
        return self._tensors("positions")

    @property
    def local_labels(self) -> list[Tensor]:
        """The label of each of these logits: the next position's, or -100."""
        return self._tensors("local_labels")

    def _tensors(self, name: str) -> list[Tensor]:
        import torch

        arrays = [] if self._lazy is None else getattr(self._lazy.sequences(), name)
        device = self.local_masks[0].device
        # Of their own memory: what is done to one of them must not reach the others.
        return [placed(torch.from_numpy(own.copy()), device) for own in arrays]
