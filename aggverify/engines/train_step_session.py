"""The rank's side of a whole training step: a new model for it, and what is read from that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from aggverify.engines import megatron_on_processors as megatron
from aggverify.engines.ddp_session import DdpSession
from aggverify.engines.spec import CompletedReduction, LocalStep
from aggverify.engines.stepping import everywhere, watched
from aggverify.steps.experts import owners

_SCALES = (1.0, 2.0**-8, 2.0**-16, 2.0**-24)
"""Factors of GradScalers' scales: the next one is tried while every rank leaves the step out."""


class _Dispatched(torch.autograd.Function):
    """Does to gradients what an all-to-all of tokens does, by a collective in backward.

    The rank that holds an expert's parameter gets its gradients from all ranks that share experts.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, tokens: Tensor, like: Tensor, group: Any) -> Tensor:
        ctx.tokens, ctx.group, ctx.theta_shape = tokens, group, theta.shape
        return torch.zeros_like(like).index_copy(0, tokens, theta[: len(tokens)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.group)
        mine = total.new_zeros(ctx.theta_shape)
        mine[: len(ctx.tokens)] = total[ctx.tokens]
        return mine, None, None, None


class Experts(nn.Module):
    """The parameter of the experts that this rank holds, as large as every other rank's.

    It has an entry for each token that goes to them. Marked as Megatron marks it, ``allreduce =
    False``.
    """

    def __init__(self, like: Tensor, owner: Tensor, rank: int, group: Any) -> None:
        super().__init__()
        self._tokens, self._like, self._group = (owner == rank).nonzero()[:, 0], like, group
        self.theta = nn.Parameter(like.new_zeros(int((owner == 0).sum())))
        self.theta.allreduce = False  # type: ignore[attr-defined]

    def forward(self) -> Tensor:
        """One entry per response token of the step, 0 where its expert is elsewhere."""
        found: Tensor = _Dispatched.apply(  # type: ignore[no-untyped-call]
            self.theta, self._tokens, self._like, self._group
        )
        return found

    def whole(self, mine: Tensor) -> Tensor:
        """Return one entry per response token from each rank's own; a collective."""
        total = torch.zeros_like(self._like).index_copy(0, self._tokens, mine[: len(self._tokens)])
        dist.all_reduce(total, group=self._group)
        return total


class StepModel(nn.Module):
    """One parameter entry, 0, per response token of the step; float64.

    ``model(micro_batch)`` is this rank's per-token losses, 1-D, as reducers get them, or with
    ``logits=True`` its logits over whole sequences, 2-D. ``experts``: those of every second token,
    where the step claims some.
    """

    def __init__(self, step: LocalStep, device: torch.device) -> None:
        super().__init__()
        self._step = step
        self.theta = nn.Parameter(torch.zeros_like(step.values, device=device))
        if step.experts is not None:
            rank, size, group = step.experts
            owner = torch.from_numpy(owners(len(step.values), size)).to(device)
            self._routed = owner >= 0
            self.experts = Experts(step.values.to(device), owner, rank, group)

    def forward(self, micro_batch: Any, *, logits: bool = False) -> Tensor:
        """``value + gain * theta[token]`` of the micro-batch's tokens, in the case's dtype."""
        theta: Tensor = self.theta
        if self._step.experts is not None:
            theta = torch.where(self._routed, self.experts(), theta)
        if logits:
            return self._step.logits(micro_batch.index, theta)
        index, gain = self._step.tokens(micro_batch.index), self._step.gain
        return (self._step.values[index] + gain * theta[index]).to(self._step.dtype)


@dataclass(frozen=True, slots=True)
class TrainStepSession:
    """Every step has its own model, so that nothing of an earlier one remains in it."""

    device: torch.device

    def warm_up(self) -> None:
        """Set up what a process's first DDP and FSDP2 need, if the candidate has imported them."""
        DdpSession(self.device).warm_up()
        if "torch.distributed.fsdp" in sys.modules:
            from aggverify.engines.fsdp2_session import Fsdp2Session

            with suppress(Exception):  # where it cannot run, the candidate gets the error
                Fsdp2Session(self.device).warm_up()

    def accumulate(self, step: LocalStep) -> Tensor:
        for times in (step.scaler * part for part in _SCALES):
            update, left_out = self._trained(step, times)
            if not left_out:
                break
        step.trained(update)
        return update

    def _trained(self, step: LocalStep, times: float) -> tuple[Tensor, bool]:
        """Return the update, and whether a scaler has left it out on every rank.

        Then a trainer goes on with a smaller scale.
        """
        model = StepModel(step, self.device)
        without_gpu = megatron.imported() and self.device.type == "cpu"
        around = megatron.on_processors() if without_gpu else nullcontext()
        with watched(step.steps_with, times) as seen, around:
            step.train(model)
        step.clipped(seen.clips)
        if seen.asked and everywhere(not seen.stepped, self.device):
            return torch.full_like(step.values, torch.nan), True
        # Read from the model again: fully_shard puts other parameters into it.
        update = _update(step, model.theta, stepped=bool(seen.stepped))
        if step.experts is not None:
            theirs = _update(step, model.experts.theta, stepped=bool(seen.stepped))
            update = torch.where(model._routed, model.experts.whole(theirs), update)
        return update / step.gain, False

    def reduce(self, parts: Sequence[Tensor]) -> CompletedReduction:
        return CompletedReduction(list(parts))


def _update(step: LocalStep, theta: Tensor, *, stepped: bool) -> Tensor:
    """Return what was subtracted from a parameter that was 0; without a step, its gradient."""
    update = _whole(theta.detach()).neg()
    if not stepped and not update.any():
        main_grad = getattr(theta, "main_grad", None)  # Megatron's
        update = _whole(step.gradient(theta) if main_grad is None else main_grad)
    return update


def _whole(tensor: Any) -> Tensor:
    """All of it on every rank: a collective where it is sharded."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full
