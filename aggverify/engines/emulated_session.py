"""The rank's side of emulated engines: one leaf, one sum over all ranks, of one or many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import _engine_run_backward

from aggverify.engines.emulated import EmulatedEngine
from aggverify.engines.spec import LocalStep, Sizes


def backward(loss: Tensor) -> None:
    """``loss.backward()`` of a scalar that has a gradient.

    For a plain tensor autograd's engine is called directly, as ``Tensor.backward`` calls it: what
    that checks before takes a good part of its time.
    """
    if type(loss) is not Tensor:
        loss.backward()  # type: ignore[no-untyped-call]
        return
    ones = (torch.ones_like(loss),)
    _engine_run_backward(
        (loss,), ones, False, False, (), allow_unreachable=True, accumulate_grad=True
    )


@dataclass(frozen=True, slots=True)
class RankGradient:
    """A rank's part of one step: its accumulated gradient, 1-D, and the tokens it counted."""

    gradient: Tensor
    num_tokens: int
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class EmulatedSession:
    """Scales losses, runs backward, and sums gradients over ranks.

    The parameter is the per-token losses themselves. It is one leaf for all micro-batches, as a
    model's is: candidates have been known to zero its gradient in between.
    """

    engine: EmulatedEngine
    device: torch.device

    def warm_up(self) -> None:
        pass  # its only collective is the one that every candidate's step ends with

    def accumulate(self, step: LocalStep) -> RankGradient:
        parameter = step.values.clone().requires_grad_()
        for k in range(step.num_microbatches):
            # index_select copies: changes that a candidate makes in place do not reach the leaf.
            before = step.num_tokens
            loss = step.loss(k, parameter.index_select(0, step.tokens(k)))
            counted = step.num_tokens - before
            if self.engine.weighted:
                loss = loss * counted
            if self.engine.averaged:
                loss = loss / max(counted, 1)
            for factor in self.engine.scale:
                loss = factor.of(loss, step.sizes)
            backward(loss)
        gradient = step.gradient(parameter)
        for factor in self.engine.before_reduction:
            factor.onto(gradient, step.sizes, 0)
        return RankGradient(gradient, step.num_tokens, step.sizes)

    def reduce(self, parts: Sequence[RankGradient]) -> GradientReduction:
        return GradientReduction(self.engine, parts, self.device)


class GradientReduction:
    """Gradients of one or many steps being summed over all ranks.

    Like DDP, which reduces buckets rather than parameters, all steps travel in one collective.
    That changes no bit: a token belongs to one rank, so every element of the sum is one number
    plus zeros, exact in whatever order it is added. A single step is waited for at once, several
    while the rank does other things.
    """

    def __init__(
        self, engine: EmulatedEngine, parts: Sequence[RankGradient], device: torch.device
    ) -> None:
        self._engine, self._parts = engine, parts
        counts = [part.num_tokens for part in parts]
        self._totals = torch.tensor(counts, dtype=torch.int32, device=device)
        self._flat = torch.cat([part.gradient for part in parts])
        travelling = [self._totals, self._flat] if engine.takes_counts else [self._flat]
        several = len(parts) > 1
        self._works = [dist.all_reduce(tensor, async_op=several) for tensor in travelling]

    @property
    def arrived(self) -> bool:
        return all(work is None or work.is_completed() for work in self._works)

    def wait(self) -> list[Tensor]:
        for work in self._works:
            if work is not None:
                work.wait()
        gradients = list(self._flat.split([len(part.gradient) for part in self._parts]))
        counts = self._totals.tolist()
        for part, gradient, count in zip(self._parts, gradients, counts, strict=True):
            for factor in self._engine.after_reduction:
                factor.onto(gradient, part.sizes, count)
        return gradients
