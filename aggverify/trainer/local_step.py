"""What a rank holds of a step: which tokens, their losses, what the candidate makes of them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggverify.conventions import Bound, Site, WholeStep
from aggverify.conventions.base import placed
from aggverify.engines import EngineSpec, Sizes
from aggverify.engines.train_step import SMALL
from aggverify.steps.layouts import owned_pieces, positions
from aggverify.trainer.answer import Log
from aggverify.trainer.contract import (
    NoGradient,
    check_optimizer,
    checked_count,
    checked_loss,
    logged,
)
from aggverify.trainer.gathering import gathered
from aggverify.trainer.labels import WrongLabel, logits
from aggverify.trainer.torch_modes import NO_GRAD, entered
from aggverify.world.trace import TRACER

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer


_NEXT_TO_NOTHING = 0.002
"""Seconds of a call that are not worth a report."""


class CandidateStep:
    """One rank's part of one case; what the candidate returned is noted as it is called."""

    def __init__(
        self,
        site: Site,
        call: Bound,
        engine: EngineSpec,
        scale: float = 1.0,
        under: str = "",
        *,
        gain: float = SMALL,
        scaler: float = 1.0,
    ) -> None:
        import torch

        layout = site.case.layout
        self._site, self._call, self._engine = site, call, engine
        self._scale, self._under = scale, under
        self.gain, self.scaler = gain, scaler
        self._micro_batches = layout.micro_batches[site.dp_rank]
        self.sizes = Sizes.of(site.case)
        values = np.array(site.case.losses, dtype=np.float64)
        self.values = placed(torch.from_numpy(values), site.device)
        self.dtype: torch.dtype = getattr(torch, site.case.dtype)
        """The case's, in which a model's losses are computed."""
        self.losses: list[float] = []
        self.counts: list[int] = []
        self.logs: list[Log] = []
        self.clips: list[tuple[float, float]] = []
        self._wrong: list[WrongLabel] = []
        self._seconds = 0.0

    @property
    def num_microbatches(self) -> int:
        return len(self._micro_batches)

    @property
    def groups(self) -> tuple[Any, Any]:
        """The process groups of its place in the grid: data-parallel, context-parallel."""
        return self._site.dp_group, self._site.cp_group

    @property
    def experts(self) -> tuple[int, int, Any] | None:
        """Its place among the ranks that share experts, their number and group; None without."""
        found = self._site.experts
        return None if found is None else (found.rank, found.size, found.group)

    @property
    def num_tokens(self) -> int:
        """Tokens counted on this rank so far: the reducer's own counts, or the trainer's."""
        return sum(self.counts)

    @property
    def call_seconds(self) -> float:
        """What one call has taken by the clock; 0.0 for next to nothing."""
        each = self._seconds / max(len(self.losses), 1)
        return each if each > _NEXT_TO_NOTHING else 0.0

    def tokens(self, k: int) -> Tensor:
        """Which response tokens of the step this rank owns in micro-batch ``k``; int64, 1-D."""
        import torch

        site, members = self._site, self._micro_batches[k]
        starts = [site.case.step.offsets[i] for i in members]
        pieces = owned_pieces(site.case.step, members, site.case.layout, site.cp_rank)
        return placed(torch.from_numpy(positions(starts, pieces)), site.device)

    def logits(self, k: int, theta: Tensor) -> Tensor:
        """Return logits of whole sequences of micro-batch ``k``.

        Cross entropy with the right labels gives the losses, but for a constant; wrong labels are
        noted in backward.
        """
        return logits(self._site, k, (self.values, self.gain * theta), self._wrong.append)

    def loss(self, k: int, losses: Tensor) -> Tensor:
        """Return the candidate's loss of micro-batch ``k``.

        Raises ContractBreach for what is none.
        """
        members = self._micro_batches[k]
        given = self.given(k, losses)
        began = time.perf_counter()
        trains = self._under != NO_GRAD
        if self._under:
            with entered(self._under, losses.device.type):
                out = self._call(k, given if trains else given.detach())
        else:
            out = self._call(k, given)
        self._seconds += time.perf_counter() - began
        TRACER.pulse()
        loss = checked_loss(out.loss, trains=trains)
        self.losses.append(float(loss.item()))
        self.counts.append(checked_count(out.count, self._site, members, self._engine))
        self.logs.append(logged(out.log))
        if not trains:
            return losses.sum() * 0  # nothing to take a gradient of
        return loss if self._scale == 1.0 else loss * self._scale

    def given(self, k: int, losses: Tensor) -> Tensor:
        """Return what the candidate is given of these losses of micro-batch ``k``.

        They are gathered, as the case has them, and in its dtype.
        """
        if self.sizes.gathered:
            times = self._engine.gathers(self.sizes)
            losses = gathered(self._site, self._micro_batches[k], losses, times)
        return losses if losses.dtype is self.dtype else losses.to(self.dtype)

    def counted(self, k: int) -> int:
        """Tokens of micro-batch ``k`` where the candidate does not count them."""
        return checked_count(None, self._site, self._micro_batches[k], self._engine)

    def gradient(self, parameter: Tensor) -> Tensor:
        """Return what backward left in the parameter.

        ContractBreach when no loss depended on it.
        """
        if parameter.grad is None:
            if isinstance(self._call, WholeStep):
                raise NoGradient(
                    "it left no gradient in the model's parameter, and did not change that either"
                )
            raise NoGradient("the returned loss does not depend on the losses it was given")
        return parameter.grad

    def train(self, model: nn.Module) -> None:
        """Have the candidate run its whole step on the model."""
        assert isinstance(self._call, WholeStep), "an engine for losses was given a whole step"
        began = time.perf_counter()
        self._call.train(model)
        self._seconds += time.perf_counter() - began
        TRACER.pulse()

    def steps_with(self, optimizer: Optimizer) -> None:
        """ContractBreach unless its step takes the gradient away and does nothing else."""
        check_optimizer(optimizer)

    def clipped(self, clips: Sequence[tuple[float, float]]) -> None:
        """Note at which norms, of which kinds, its step has clipped gradients."""
        self.clips = list(clips)

    def trained(self, update: Tensor) -> None:
        """Note what the update makes of this rank's losses.

        A token of weight 0 has no part in it, whatever its loss. Raises WrongLabel: no rank waits
        for this one any more.
        """
        if self._wrong:
            raise self._wrong[0]
        for k in range(self.num_microbatches):
            mine = self.tokens(k)
            weights, losses = update[mine].tolist(), self.values[mine].tolist()
            pairs = zip(weights, losses, strict=True)
            self.losses.append(math.fsum(w * x for w, x in pairs if w))
            self.counts.append(0)
