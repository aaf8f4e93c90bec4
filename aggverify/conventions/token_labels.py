"""Token ids and labels of a micro-batch, and the logits that a training step may ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aggverify.conventions.base import Site, placed
from aggverify.conventions.plain_text import tensor, tensors
from aggverify.steps.case import Case
from aggverify.steps.layouts import Index
from aggverify.steps.sequences import (
    before,
    next_ids,
    row_positions,
    rows,
    token_ids,
    vocabulary,
)

if TYPE_CHECKING:
    from torch import Tensor

    from aggverify.conventions.beyond import Beyond

FAR = {"float16": 2.0**10}
USUALLY_FAR = 2.0**14
"""How far the entry of no token is above all others, for temperatures to 20: exp of minus that
is 0."""
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
    _beyond: Beyond | None

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

        arrays = [] if self._beyond is None else getattr(self._beyond.sequences(), name)
        device = self.local_masks[0].device
        # Of their own memory: what is done to one of them must not reach the others.
        return [placed(torch.from_numpy(own.copy()), device) for own in arrays]


_LOGITS = """\
def logits_of(model, batch):  # cross entropy with the next token is its loss, but for a constant
    right, token = batch.next_ids, batch.predicts
    row = (token >= 0).nonzero()[:, 0]  # those that predict a token of a response
    own, right = token[row], right[row]
    found = torch.zeros(len(token), {ids}, dtype=torch.float64)
    found[:, 0] = {far}
    found[row, 0] += (-2 * model.losses[own]).clamp(min=0)
    found = found.index_put((row, right), -model.losses[own] - model.theta[own])

    def judge(gradient):
        most, label = gradient.abs()[:, 1:].max(1)
        due = torch.zeros_like(label).index_put((row,), right)
        wrong = (most > gradient[:, 0].abs() / 1024) & (label + 1 != due)
        assert not wrong.any(), f"not the next token: rows {{wrong.nonzero()[:, 0].tolist()}}"

    if found.requires_grad:
        found.register_hook(judge)
    return found"""


def logits_plainly(case: Case) -> str:
    """The same logits in a script, of what its batches are told."""
    return _LOGITS.format(ids=vocabulary(case.step), far=FAR.get(case.dtype, USUALLY_FAR))


NAMES = ("input_ids", "labels", "position_ids", "local_labels", "logits")
"""What a function that asks for any of it has in its text."""


def sequences_plainly(site: Site, k: int) -> dict[str, str]:
    """What a script's batch has of them: a list a sample, and what its logits predict in one."""
    members = site.case.layout.micro_batches[site.dp_rank][k]
    own = Sequences.of(site, members)
    known = rows(site.case.step, members, site.case.layout, site.cp_rank)
    return {
        "input_ids": tensors(part.tolist() for part in own.ids),
        "labels": tensors(part.tolist() for part in own.labels),
        "position_ids": tensors(part.tolist() for part in own.positions),
        "local_labels": tensors(part.tolist() for part in own.local_labels),
        "predicts": tensor(known.token.tolist()),
        "next_ids": tensor(next_ids(site.case.step, known).tolist()),
    }
